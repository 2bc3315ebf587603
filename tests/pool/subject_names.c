/* tests/pool/subject_names.c - what lines name: sessions, sequences, payers; and the keys of their
 * tokens. */
#include "tests/pool/subject_core.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---------------------------------------------------------------------------------- */

uint32_t core_find_name(const struct name *names, uint32_t count, const char *text)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(names[i].text, text) == 0)
            return i;
    }
    return POOL_NONE;
}

static uint32_t only_tenant(const struct core *core)
{
    uint32_t only = POOL_NONE;

    for (uint32_t i = 0; i < core->num_payers; i++) {
        if (core->payers[i].is_domain)
            continue;
        if (only != POOL_NONE)
            return POOL_NONE;
        only = i;
    }
    return only;
}

bool core_resolve(const struct core *core, const struct script_command *command,
                  pool_model *out_model, pool_payer *out_payer, struct text *answer)
{
    if ((!*command->model && core->num_models != 1) ||
        (!*command->tenant && only_tenant(core) == POOL_NONE)) {
        text_add(answer, "error: %s is missing, and not exactly one is declared",
                 !*command->model && core->num_models != 1 ? "model=" : "tenant=");
        return false;
    }
    *out_model =
        *command->model ? core_find_name(core->models, core->num_models, command->model) : 0;
    *out_payer = *command->tenant ? core_find_name(core->payers, core->num_payers, command->tenant)
                                  : only_tenant(core);
    if (*out_model != POOL_NONE && *out_payer != POOL_NONE)
        return true;
    return !core_refused(answer, POOL_NOT_FOUND);
}

struct named_sequence *core_find_sequence(const struct core *core, const char *name)
{
    for (size_t i = 0; i < core->num_sequences; i++) {
        if (strcmp(core->sequences[i].name, name) == 0)
            return &core->sequences[i];
    }
    return NULL;
}

struct named_sequence *core_named(const struct core *core, const struct script_command *command,
                                  struct text *answer)
{
    struct named_sequence *sequence = core_find_sequence(core, command->name);

    if (!sequence)
        (void)core_refused(answer, POOL_NOT_FOUND);
    return sequence;
}

void core_identity_finish(struct identity *identity)
{
    for (size_t i = 0; i < identity->num_extras; i++)
        free((void *)(uintptr_t)identity->extras[i].bytes);
    free(identity->extras);
}

void core_forget_sequence(struct core *core, struct named_sequence *sequence)
{
    core_identity_finish(&sequence->identity);
    *sequence = core->sequences[--core->num_sequences];
}

struct named_sequence *core_remember_sequence(struct core *core, const char *name,
                                              struct pool_name id)
{
    core->sequences =
        realloc(core->sequences, (core->num_sequences + 1) * sizeof(*core->sequences));
    assert(core->sequences);
    struct named_sequence *sequence = &core->sequences[core->num_sequences++];
    *sequence = (struct named_sequence){.id = id};
    strcpy(sequence->name, name);
    return sequence;
}

struct named_session *core_find_session(const struct core *core, const char *name)
{
    for (size_t i = 0; i < core->num_sessions; i++) {
        if (strcmp(core->sessions[i].name, name) == 0)
            return &core->sessions[i];
    }
    return NULL;
}

struct named_session *core_remember_session(struct core *core, const char *name)
{
    struct named_session session = {0};

    strcpy(session.name, name);
    if (pool_session_open(core->pool, &session.id))
        return NULL;
    core->sessions = realloc(core->sessions, (core->num_sessions + 1) * sizeof(session));
    assert(core->sessions);
    core->sessions[core->num_sessions++] = session;
    return &core->sessions[core->num_sessions - 1];
}

/* ---- keys ----------------------------------------------------------------------------------- */

void core_make_root(const struct core *core, pool_payer domain, pool_model model,
                    const struct script_command *command, struct key *out_root)
{
    uint8_t secret[KEY_BYTES] = {(uint8_t)domain, (uint8_t)(domain >> 8)};
    struct key_fingerprint fingerprint = {{(uint8_t)model, (uint8_t)(model >> 8)}};
    struct key_root_fields fields = {.domain_secret = secret, .model = &fingerprint};

    if (command->has_adapter)
        fields.adapter_id = (struct key_bytes){command->adapter, strlen(command->adapter)};
    if (command->has_salt)
        fields.engine_salt = (struct key_bytes){command->salt, strlen(command->salt)};
    int err = key_root(core->hasher, &fields, out_root);
    assert(err == 0);
}

void core_copy_extras(const struct script_command *command, struct identity *identity)
{
    identity->num_extras = command->num_extras;
    identity->extras = calloc(command->num_extras + 1, sizeof(*identity->extras));
    assert(identity->extras);
    for (size_t i = 0; i < command->num_extras; i++) {
        void *bytes = malloc(command->extras[i].num_bytes + 1);
        assert(bytes);
        memcpy(bytes, command->extras[i].bytes, command->extras[i].num_bytes);
        identity->extras[i] =
            (struct key_extra){command->extras[i].block, bytes, command->extras[i].num_bytes};
    }
}

struct pool_key *core_make_keys(const struct core *core, const struct identity *identity,
                                const struct key *parent, uint64_t first, const uint32_t *tokens,
                                uint64_t count)
{
    struct pool_key *keys = calloc(count / core->block_tokens + 1, sizeof(*keys));
    assert(keys);
    const struct key_prompt prompt = {.parent = parent,
                                      .first_block = first,
                                      .tokens = tokens,
                                      .num_tokens = count,
                                      .block_tokens = (uint32_t)core->block_tokens,
                                      .extras = identity->extras,
                                      .num_extras = identity->num_extras,
                                      .out = (struct key *)keys};
    int err = key_chain(core->hasher, &prompt);
    assert(err == 0);
    return keys;
}

struct pool_tokens core_make_tokens(const struct core *core, const struct identity *identity,
                                    const uint32_t *ids, uint64_t count)
{
    struct pool_tokens tokens = {.ids = ids, .count = count};

    tokens.keys = core_make_keys(core, identity, &identity->root, 0, ids, count);
    if (identity->has_shared)
        tokens.shared_keys = core_make_keys(core, identity, &identity->shared_root, 0, ids, count);
    return tokens;
}

void core_tokens_finish(struct pool_tokens *tokens)
{
    free((void *)(uintptr_t)tokens->keys);
    free((void *)(uintptr_t)tokens->shared_keys);
}
