/*
 * tests/pool/subject_core.c - the shell's commands, carried out by the pool's core.
 *
 * Plays the daemon (keys from the prompts' identities, sessions by name), the engine, and a device
 * that finishes at once: copies are done, and what goes on in slices is done, before a line is answered.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "pool/pool.h"
#include "proto/key.h"
#include "tests/pool/script.h"

enum {
    MAX_COPIES = 64, /* under way at once: one a layer group */
    MAX_BLOCKS_AT_LEAST = 1 << 17,
    MAX_BLOCKS_AT_MOST = 1 << 22,
    BLOCKS_A_GRANULE = 64,
    MAX_NAMES = 1024
};

struct name {
    char text[SCRIPT_MAX_NAME + 1];
    bool is_domain;
};

/* What a sequence's keys are made of beside its tokens. */
struct identity {
    struct key root, shared_root;
    bool has_shared;
    struct key_extra *extras;
    size_t num_extras;
};

struct named_session {
    char name[SCRIPT_MAX_NAME + 1]; /* "": of the lines without session= */
    pool_session id;
};

struct named_sequence {
    char name[SCRIPT_MAX_NAME + 1];
    struct pool_name id;
    struct identity identity;
};

struct core {
    struct pool *pool;
    struct key_hasher *hasher;
    struct name payers[MAX_NAMES], models[MAX_NAMES];
    struct pool_model_shape shapes[MAX_NAMES];
    uint32_t num_payers, num_models;
    uint64_t block_tokens, num_made;
    struct named_session *sessions;
    struct named_sequence *sequences;
    size_t num_sessions, num_sequences;
    pool_transfer copies[MAX_COPIES];
    uint32_t num_copies;
};

/* ---- answers -------------------------------------------------------------------------------- */

static const char *const answer_words[] = {[POOL_NOT_FOUND] = "NOT_FOUND",
                                           [POOL_EXISTS] = "EXISTS",
                                           [POOL_INVALID] = "INVALID",
                                           [POOL_NEVER_FITS] = "NEVER_FITS",
                                           [POOL_QUOTA] = "QUOTA",
                                           [POOL_NO_BLOCKS] = "NO_BLOCKS",
                                           [POOL_LIMIT] = "LIMIT",
                                           [POOL_STALE] = "STALE",
                                           [POOL_DRAINING] = "DRAINING",
                                           [POOL_BUSY] = "BUSY"};

/* Adds the refusal's word; false: it is none. */
static bool refused(struct text *text, int answer)
{
    if (answer == 0)
        return false;
    assert(answer > 0 && (size_t)answer < sizeof(answer_words) / sizeof(answer_words[0]));
    text_add(text, "%s", answer_words[answer]);
    return true;
}

/* ---- the device and the daemon's loop ------------------------------------------------------- */

static void on_effect(void *context, const struct pool_effect *effect)
{
    struct core *core = context;

    if (effect->kind == POOL_EFFECT_COPY) {
        assert(core->num_copies < MAX_COPIES);
        core->copies[core->num_copies++] = effect->transfer;
    }
}

/* Everything that was begun ends now. */
static void settle(struct core *core)
{
    for (uint32_t i = 0; i < core->num_copies; i++) {
        int answer = pool_transfer_done(core->pool, core->copies[i], 0);
        assert(answer == 0);
    }
    core->num_copies = 0;
    while (pool_advance(core->pool, UINT32_MAX))
        ;
}

/* ---- names ---------------------------------------------------------------------------------- */

static uint32_t find_name(const struct name *names, uint32_t count, const char *text)
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

/* model= and tenant=, or the only ones. False: it has answered. */
static bool resolve(const struct core *core, const struct script_command *command,
                    pool_model *out_model, pool_payer *out_payer, struct text *answer)
{
    if ((!*command->model && core->num_models != 1) ||
        (!*command->tenant && only_tenant(core) == POOL_NONE)) {
        text_add(answer, "error: %s is missing, and not exactly one is declared",
                 !*command->model && core->num_models != 1 ? "model=" : "tenant=");
        return false;
    }
    *out_model =
        *command->model ? find_name(core->models, core->num_models, command->model) : 0;
    *out_payer = *command->tenant ? find_name(core->payers, core->num_payers, command->tenant)
                                  : only_tenant(core);
    if (*out_model != POOL_NONE && *out_payer != POOL_NONE)
        return true;
    return !refused(answer, POOL_NOT_FOUND);
}

static struct named_sequence *find_sequence(const struct core *core, const char *name)
{
    for (size_t i = 0; i < core->num_sequences; i++) {
        if (strcmp(core->sequences[i].name, name) == 0)
            return &core->sequences[i];
    }
    return NULL;
}

/* The sequence a line names, or NULL after answering NOT_FOUND. */
static struct named_sequence *named(const struct core *core, const struct script_command *command,
                                    struct text *answer)
{
    struct named_sequence *sequence = find_sequence(core, command->name);

    if (!sequence)
        (void)refused(answer, POOL_NOT_FOUND);
    return sequence;
}

static void identity_finish(struct identity *identity)
{
    for (size_t i = 0; i < identity->num_extras; i++)
        free((void *)(uintptr_t)identity->extras[i].bytes);
    free(identity->extras);
}

static void forget_sequence(struct core *core, struct named_sequence *sequence)
{
    identity_finish(&sequence->identity);
    *sequence = core->sequences[--core->num_sequences];
}

static struct named_sequence *remember_sequence(struct core *core, const char *name,
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

static struct named_session *find_session(const struct core *core, const char *name)
{
    for (size_t i = 0; i < core->num_sessions; i++) {
        if (strcmp(core->sessions[i].name, name) == 0)
            return &core->sessions[i];
    }
    return NULL;
}

static struct named_session *remember_session(struct core *core, const char *name)
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

/* A secret for each domain and a fingerprint for each model: their numbers. */
static void make_root(const struct core *core, pool_payer domain, pool_model model,
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

static void copy_extras(const struct script_command *command, struct identity *identity)
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

/* Keys of the full blocks of @count tokens that start at block @first, behind @parent. */
static struct pool_key *make_keys(const struct core *core, const struct identity *identity,
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

/* Tokens with both chains of keys; finish with prompt_tokens_finish(). */
static struct pool_tokens make_tokens(const struct core *core, const struct identity *identity,
                                      const uint32_t *ids, uint64_t count)
{
    struct pool_tokens tokens = {.ids = ids, .count = count};

    tokens.keys = make_keys(core, identity, &identity->root, 0, ids, count);
    if (identity->has_shared)
        tokens.shared_keys = make_keys(core, identity, &identity->shared_root, 0, ids, count);
    return tokens;
}

static void tokens_finish(struct pool_tokens *tokens)
{
    free((void *)(uintptr_t)tokens->keys);
    free((void *)(uintptr_t)tokens->shared_keys);
}

/* ---- set-up --------------------------------------------------------------------------------- */

static void run_pool(struct core *core, const struct script_command *command, struct text *answer)
{
    struct pool_config config;
    uint64_t blocks = command->blocks * BLOCKS_A_GRANULE;

    if (core->pool) {
        text_add(answer, "error: there is a pool already");
        return;
    }
    blocks = blocks < MAX_BLOCKS_AT_LEAST ? MAX_BLOCKS_AT_LEAST : blocks;
    blocks = blocks > MAX_BLOCKS_AT_MOST ? MAX_BLOCKS_AT_MOST : blocks;
    pool_config_init(&config, (uint32_t)blocks, command->blocks);
    config.devices[0].watermark = command->watermark;
    config.max_block_tokens = (uint32_t)command->block_tokens;
    config.max_tokens = UINT64_C(1) << 24;
    config.max_sequences = 65535;
    config.max_sequence_blocks = 1 << 20;
    config.max_models = MAX_NAMES;
    config.max_payers = MAX_NAMES;
    config.max_arenas = UINT16_MAX;
    config.sink = (struct pool_sink){on_effect, core};
    core->block_tokens = command->block_tokens;
    int err = pool_create(&config, &core->pool);
    if (err)
        text_add(answer, "error: pool_create: %s", strerror(-err));
    else
        text_add(answer, "ok");
}

static void run_payer(struct core *core, const struct script_command *command, struct text *answer)
{
    bool is_domain = command->verb == VERB_DOMAIN;
    struct pool_quota quota = {command->guarantee, command->limit, command->weight};
    pool_payer readers[SCRIPT_MAX_READERS], id;

    for (size_t i = 0; i < command->num_readers; i++) {
        readers[i] = find_name(core->payers, core->num_payers, command->readers[i]);
        if ((readers[i] == POOL_NONE || core->payers[readers[i]].is_domain) &&
            refused(answer, POOL_NOT_FOUND))
            return;
    }
    if (find_name(core->payers, core->num_payers, command->name) != POOL_NONE &&
        refused(answer, POOL_EXISTS))
        return;
    if (refused(answer, is_domain ? pool_domain_create(core->pool, &quota, &id)
                                  : pool_tenant_create(core->pool, &quota, &id)))
        return;
    for (size_t i = 0; i < command->num_readers; i++)
        (void)pool_domain_grant(core->pool, id, readers[i], POOL_MAY_READ);
    strcpy(core->payers[id].text, command->name);
    core->payers[id].is_domain = is_domain;
    core->num_payers++;
    text_add(answer, "ok");
}

static void run_model(struct core *core, const struct script_command *command, struct text *answer)
{
    struct pool_model_shape shape = {.block_tokens = (uint32_t)core->block_tokens,
                                     .num_layers = 1,
                                     .num_groups = (uint32_t)command->num_groups,
                                     .num_ranks = 1};
    pool_model id;

    for (size_t i = 0; i < command->num_groups; i++)
        shape.groups[i] = (struct pool_group){.window = command->groups[i].window,
                                              .pages = 1,
                                              .slots = command->groups[i].per_granule};
    if (find_name(core->models, core->num_models, command->name) != POOL_NONE &&
        refused(answer, POOL_EXISTS))
        return;
    if (refused(answer, pool_model_register(core->pool, &shape, &id)))
        return;
    strcpy(core->models[id].text, command->name);
    core->shapes[id] = shape;
    core->num_models++;
    text_add(answer, "ok");
}

/* ---- sequences ------------------------------------------------------------------------------ */

static void print_group(const struct core *core, struct pool_name id, uint32_t group,
                        const struct pool_sequence_description *sequence, struct text *answer)
{
    struct pool_place *places = NULL;
    uint32_t count = 0;
    pool_payer shared = sequence->shared;

    (void)pool_table(core->pool, id, group, NULL, 0, &count);
    places = calloc(count + 1, sizeof(*places));
    assert(places);
    (void)pool_table(core->pool, id, group, places, count, &count);
    if (core->payers[sequence->domain].is_domain)
        shared = sequence->domain; /* the operator's own: all of it is the domain's */
    for (uint32_t i = 0; i < count; i++) {
        bool is_shared = places[i].slot != 0 &&
                         (places[i].is_shared || shared == sequence->domain);
        text_add(answer, "%s%s%s%u", i ? "," : "", is_shared ? core->payers[shared].text : "",
                 is_shared ? ":" : "", places[i].slot);
    }
    free(places);
}

static void print_table(const struct core *core, struct pool_name id, struct text *answer)
{
    struct pool_sequence_description sequence;
    int err = pool_describe(core->pool, id, &sequence);

    assert(err == 0);
    text_add(answer, "table=");
    for (uint32_t group = 0; group < core->shapes[sequence.model].num_groups; group++) {
        if (group > 0)
            text_add(answer, ";");
        print_group(core, id, group, &sequence, answer);
    }
}

/* "ok table=...", or the refusal. */
static void answer_table(struct core *core, int result, struct pool_name id, struct text *answer)
{
    if (result != POOL_PENDING && refused(answer, result))
        return;
    settle(core);
    text_add(answer, "ok ");
    print_table(core, id, answer);
}

/* The prompt of an alloc or find line. False: it has answered. */
static bool make_prompt(const struct core *core, const struct script_command *command,
                        struct identity *identity, struct pool_prompt *out_prompt,
                        struct text *answer)
{
    pool_payer tenant, shared = POOL_NONE;
    pool_model model;

    if (!resolve(core, command, &model, &tenant, answer))
        return false;
    if (*command->layered) {
        shared = find_name(core->payers, core->num_payers, command->layered);
        if (shared == POOL_NONE)
            return !refused(answer, POOL_NOT_FOUND);
    }
    make_root(core, tenant, model, command, &identity->root);
    identity->has_shared = shared != POOL_NONE;
    if (identity->has_shared)
        make_root(core, shared, model, command, &identity->shared_root);
    copy_extras(command, identity);
    *out_prompt = (struct pool_prompt){
        .tenant = tenant,
        .domain = tenant,
        .shared = shared,
        .model = model,
        .tokens = make_tokens(core, identity, command->tokens, command->num_tokens),
        .is_raw = command->raw};
    return true;
}

static struct pool_alloc_options make_options(const struct script_command *command)
{
    return (struct pool_alloc_options){
        .is_mapped = command->mapped,
        .is_unfilled = command->unfilled,
        .take = command->take == SCRIPT_UNSET ? POOL_TAKE_ALL : command->take};
}

static void answer_found(struct core *core, const struct pool_found *found, struct pool_name id,
                         bool is_unfilled, struct text *answer)
{
    if (!is_unfilled) {
        int err = pool_publish(core->pool, id);
        assert(err == 0);
    }
    text_add(answer, "ok matched=%llu arriving=%llu ", (unsigned long long)found->matched,
             (unsigned long long)found->arriving);
    print_table(core, id, answer);
}

static void run_alloc(struct core *core, const struct script_command *command, struct text *answer)
{
    struct identity identity = {0};
    struct pool_prompt prompt;
    struct pool_found found;
    struct named_session *session = find_session(core, command->session);
    bool is_new = !session;

    if (!make_prompt(core, command, &identity, &prompt, answer))
        return;
    if (is_new)
        session = remember_session(core, command->session);
    struct pool_name id = {session ? session->id : POOL_NONE, core->num_made};
    const struct pool_alloc_options options = make_options(command);
    int result = find_sequence(core, command->name)
                     ? POOL_EXISTS
                     : pool_alloc(core->pool, id, &prompt, &options, &found);
    if (result == POOL_EXISTS && prompt.shared != POOL_NONE &&
        (!core->payers[prompt.shared].is_domain ||
         pool_match(core->pool, &prompt, &found) == POOL_NOT_FOUND))
        result = POOL_NOT_FOUND; /* "in that order" */
    tokens_finish(&prompt.tokens);
    if (result != 0) {
        identity_finish(&identity);
        if (is_new && session) { /* a refusal does not make the session known */
            (void)pool_session_end(core->pool, session->id, false, NULL);
            core->num_sessions--;
        }
        settle(core);
        (void)refused(answer, result);
        return;
    }
    core->num_made++;
    remember_sequence(core, command->name, id)->identity = identity;
    answer_found(core, &found, id, options.is_unfilled, answer);
}

static void run_find(struct core *core, const struct script_command *command, struct text *answer)
{
    struct identity identity = {0};
    struct pool_prompt prompt;
    struct pool_found found;

    if (!make_prompt(core, command, &identity, &prompt, answer))
        return;
    int result = pool_match(core->pool, &prompt, &found);
    tokens_finish(&prompt.tokens);
    identity_finish(&identity);
    if (!refused(answer, result))
        text_add(answer, "matched=%llu", (unsigned long long)found.matched);
}

/* All token ids of a sequence from block @first on, with room for @more. */
static uint32_t *tokens_from(const struct core *core, struct pool_name id, uint64_t first,
                             uint64_t more, uint64_t *out_count)
{
    struct pool_sequence_description sequence;

    (void)pool_describe(core->pool, id, &sequence);
    *out_count = sequence.length - first * core->block_tokens;
    uint32_t *ids = calloc(*out_count + more + 1, sizeof(*ids));
    assert(ids);
    (void)pool_sequence_tokens(core->pool, id, first * core->block_tokens, *out_count, ids);
    return ids;
}

static void run_append(struct core *core, const struct script_command *command,
                       struct text *answer)
{
    const struct named_sequence *sequence = named(core, command, answer);
    struct pool_sequence_description description;
    struct pool_key parent;
    uint64_t num_tail;

    if (!sequence)
        return;
    (void)pool_describe(core->pool, sequence->id, &description);
    uint64_t first = description.length / core->block_tokens;
    if (first > 0)
        (void)pool_sequence_key(core->pool, sequence->id, first - 1, &parent);
    else
        memcpy(&parent, &sequence->identity.root, sizeof(parent));
    uint32_t *ids = tokens_from(core, sequence->id, first, command->num_tokens, &num_tail);
    if (command->num_tokens > 0)
        memcpy(ids + num_tail, command->tokens, command->num_tokens * sizeof(*ids));
    struct pool_key *keys = make_keys(core, &sequence->identity, (const struct key *)&parent, first,
                                      ids, num_tail + command->num_tokens);
    const struct pool_tokens tokens = {command->tokens, command->num_tokens, keys, NULL};
    int result = pool_append(core->pool, sequence->id, &tokens, 0);
    free(ids);
    free(keys);
    answer_table(core, result, sequence->id, answer);
}

static void run_fill(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *sequence = named(core, command, answer);

    if (!sequence)
        return;
    int result = pool_fill(core->pool, sequence->id);
    if (result == 0)
        result = pool_publish(core->pool, sequence->id);
    answer_table(core, result, sequence->id, answer);
}

static void run_publish(struct core *core, const struct script_command *command,
                        struct text *answer)
{
    const struct named_sequence *sequence = named(core, command, answer);

    if (sequence)
        answer_table(core, pool_publish(core->pool, sequence->id), sequence->id, answer);
}

static void run_fork(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *parent = named(core, command, answer);

    if (!parent)
        return;
    if (find_sequence(core, command->child) && refused(answer, POOL_EXISTS))
        return;
    struct pool_name id = {parent->id.session, core->num_made};
    if (refused(answer, pool_fork(core->pool, parent->id, id.id)))
        return;
    core->num_made++;
    struct named_sequence *child = remember_sequence(core, command->child, id);
    parent = find_sequence(core, command->name);
    child->identity = parent->identity;
    const struct script_command extras = {
        .extras = (const struct script_extra *)parent->identity.extras,
        .num_extras = parent->identity.num_extras};
    copy_extras(&extras, &child->identity);
    answer_table(core, 0, id, answer);
}
_Static_assert(sizeof(struct script_extra) == sizeof(struct key_extra), "copied as one");

static void run_truncate(struct core *core, const struct script_command *command,
                         struct text *answer)
{
    const struct named_sequence *sequence = named(core, command, answer);

    if (sequence)
        answer_table(core, pool_truncate(core->pool, sequence->id, command->number, 0),
                     sequence->id, answer);
}

static void run_preempt(struct core *core, const struct script_command *command,
                        struct text *answer)
{
    const struct named_sequence *sequence = named(core, command, answer);

    if (sequence && !refused(answer, pool_preempt(core->pool, sequence->id, 0)))
        text_add(answer, "ok");
}

static void run_resume(struct core *core, const struct script_command *command,
                       struct text *answer)
{
    const struct named_sequence *sequence = named(core, command, answer);
    const struct pool_alloc_options options = make_options(command);
    struct pool_found found;
    uint64_t count;

    if (!sequence)
        return;
    uint32_t *ids = tokens_from(core, sequence->id, 0, 0, &count);
    struct pool_tokens tokens = make_tokens(core, &sequence->identity, ids, count);
    int result = pool_resume(core->pool, sequence->id, &tokens, &options, &found);
    tokens_finish(&tokens);
    free(ids);
    if (!refused(answer, result))
        answer_found(core, &found, sequence->id, options.is_unfilled, answer);
}

static void run_release(struct core *core, const struct script_command *command,
                        struct text *answer)
{
    struct named_sequence *sequence = named(core, command, answer);

    if (!sequence || refused(answer, pool_release(core->pool, sequence->id, 0)))
        return;
    forget_sequence(core, sequence);
    text_add(answer, "ok");
}

static void run_end_session(struct core *core, const struct script_command *command,
                            struct text *answer)
{
    struct named_session *session = find_session(core, command->name);
    uint32_t num_sequences;

    if (!session) {
        (void)refused(answer, POOL_NOT_FOUND);
        return;
    }
    if (refused(answer, pool_session_end(core->pool, session->id, false, &num_sequences)))
        return;
    settle(core);
    for (size_t i = core->num_sequences; i-- > 0;) {
        if (core->sequences[i].id.session == session->id)
            forget_sequence(core, &core->sequences[i]);
    }
    *session = core->sessions[--core->num_sessions];
    text_add(answer, "ok released=%u", num_sequences);
}

static void run_table(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *sequence = named(core, command, answer);
    struct pool_sequence_description description;

    if (!sequence)
        return;
    (void)pool_describe(core->pool, sequence->id, &description);
    text_add(answer, "len=%llu ", (unsigned long long)description.length);
    print_table(core, sequence->id, answer);
}

/* ---- the rest ------------------------------------------------------------------------------- */

/* The arena that model=, group= and tenant= name; POOL_NONE: not used yet. False: it has answered. */
static bool resolve_arena(const struct core *core, const struct script_command *command,
                          uint32_t *out_arena, struct text *answer)
{
    pool_model model;
    pool_payer payer;

    if (!resolve(core, command, &model, &payer, answer))
        return false;
    if (command->group >= core->shapes[model].num_groups) {
        text_add(answer, "error: group=%llu: the model has %u groups",
                 (unsigned long long)command->group, core->shapes[model].num_groups);
        return false;
    }
    if (pool_arena_find(core->pool, payer, model, (uint32_t)command->group, out_arena))
        *out_arena = POOL_NONE;
    return true;
}

static void print_order(const struct core *core, uint32_t arena, enum pool_order order,
                        struct text *answer)
{
    size_t count = pool_arena_order(core->pool, arena, order, NULL, 0);
    uint32_t *slots = calloc(count + 1, sizeof(*slots));

    assert(slots);
    (void)pool_arena_order(core->pool, arena, order, slots, count);
    for (size_t i = 0; i < count; i++)
        text_add(answer, "%s%u", i ? "," : "", slots[i]);
    free(slots);
}

static uint64_t stat_value(const struct core *core, const char *name)
{
    struct pool_stat stats[128];
    size_t count = pool_stats(core->pool, stats, 128);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(stats[i].name, name) == 0)
            return stats[i].value;
    }
    return 0;
}

static void run_free_list(struct core *core, const struct script_command *command,
                          struct text *answer)
{
    uint32_t arena;

    if (!resolve_arena(core, command, &arena, answer))
        return;
    text_add(answer, "free=");
    print_order(core, arena, POOL_ORDER_FREE, answer);
    text_add(answer, " uncommitted=%llu evictable=",
             (unsigned long long)stat_value(core, "uncommitted"));
    print_order(core, arena, POOL_ORDER_EVICTABLE, answer);
}

static void run_holds(struct core *core, const struct script_command *command, struct text *answer)
{
    uint32_t arena;

    if (!resolve_arena(core, command, &arena, answer))
        return;
    for (size_t i = 0; i < command->num_slots; i++) {
        uint64_t slot = command->slots[i];
        bool is_possible = slot > 0 && slot <= UINT32_MAX && arena != POOL_NONE;
        text_add(answer, "%s%llu:%u", i ? " " : "", (unsigned long long)slot,
                 is_possible ? pool_slot_holds(core->pool, arena, (uint32_t)slot) : 0);
    }
}

static void run_evict(struct core *core, const struct script_command *command, struct text *answer)
{
    text_add(answer, "ok evicted=%llu",
             (unsigned long long)pool_evict(core->pool, command->number));
}

static void run_clear(struct core *core, const struct script_command *command, struct text *answer)
{
    (void)command;
    (void)pool_clear(core->pool, POOL_NONE, POOL_NONE);
    settle(core);
    text_add(answer, "ok");
}

static void run_stats(struct core *core, const struct script_command *command, struct text *answer)
{
    struct pool_stat stats[128];
    size_t count = pool_stats(core->pool, stats, 128);

    (void)command;
    for (size_t i = 0; i < count; i++)
        text_add(answer, "%s=%llu\n", stats[i].name, (unsigned long long)stats[i].value);
    text_add(answer, "ok");
}

static void run_check(struct core *core, const struct script_command *command, struct text *answer)
{
    (void)command;
    pool_check(core->pool);
    text_add(answer, "ok");
}

/* clang-format off */
static void (*const answer_verb[NUM_VERBS])(struct core *, const struct script_command *,
                                            struct text *) = {
    [VERB_POOL]        = run_pool,
    [VERB_TENANT]      = run_payer,
    [VERB_DOMAIN]      = run_payer,
    [VERB_MODEL]       = run_model,
    [VERB_ALLOC]       = run_alloc,
    [VERB_FIND]        = run_find,
    [VERB_APPEND]      = run_append,
    [VERB_FILL]        = run_fill,
    [VERB_PUBLISH]     = run_publish,
    [VERB_FORK]        = run_fork,
    [VERB_TRUNCATE]    = run_truncate,
    [VERB_PREEMPT]     = run_preempt,
    [VERB_RESUME]      = run_resume,
    [VERB_RELEASE]     = run_release,
    [VERB_END_SESSION] = run_end_session,
    [VERB_TABLE]       = run_table,
    [VERB_FREE_LIST]   = run_free_list,
    [VERB_HOLDS]       = run_holds,
    [VERB_EVICT]       = run_evict,
    [VERB_CLEAR]       = run_clear,
    [VERB_STATS]       = run_stats,
    [VERB_CHECK]       = run_check,
};
/* clang-format on */

static void *core_create(void)
{
    struct core *core = calloc(1, sizeof(*core));

    if (!core || key_hasher_create(&core->hasher)) {
        free(core);
        return NULL;
    }
    return core;
}

static void core_destroy(void *self)
{
    struct core *core = self;

    if (!core)
        return;
    for (size_t i = 0; i < core->num_sequences; i++)
        identity_finish(&core->sequences[i].identity);
    free(core->sequences);
    free(core->sessions);
    pool_destroy(core->pool);
    key_hasher_destroy(core->hasher);
    free(core);
}

static void core_run(void *self, const struct script_command *command, struct text *answer)
{
    struct core *core = self;

    if (!core->pool && command->verb != VERB_POOL)
        text_add(answer, "error: the first line must be: pool blocks=N");
    else
        answer_verb[command->verb](core, command, answer);
}

const struct script_subject subject_core = {
    .name = "core", .create = core_create, .destroy = core_destroy, .run = core_run};
