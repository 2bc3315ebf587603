/* tests/pool/subject_sequences.c - the shell's lines about sequences. */
#include "tests/pool/subject_core.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool core_make_prompt(const struct core *core, const struct script_command *command,
                      struct identity *identity, struct pool_prompt *out_prompt,
                      struct text *answer)
{
    pool_payer tenant, shared = POOL_NONE;
    pool_model model;

    if (!core_resolve(core, command, &model, &tenant, answer))
        return false;
    if (*command->layered) {
        shared = core_find_name(core->payers, core->num_payers, command->layered);
        if (shared == POOL_NONE)
            return !core_refused(answer, POOL_NOT_FOUND);
    }
    core_make_root(core, tenant, model, command, &identity->root);
    identity->has_shared = shared != POOL_NONE;
    if (identity->has_shared)
        core_make_root(core, shared, model, command, &identity->shared_root);
    core_copy_extras(command, identity);
    *out_prompt = (struct pool_prompt){
        .tenant = tenant,
        .domain = tenant,
        .shared = shared,
        .model = model,
        .tokens = core_make_tokens(core, identity, command->tokens, command->num_tokens),
        .is_raw = command->raw};
    return true;
}

static struct pool_alloc_options make_options(const struct script_command *command)
{
    return (struct pool_alloc_options){
        .is_mapped = command->mapped,
        .is_unfilled = command->unfilled,
        .take = command->take == SCRIPT_UNSET ? POOL_TAKE_ALL : command->take,
        .deadline_ms = command->deadline == SCRIPT_UNSET ? 0 : command->deadline};
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
    core_print_table(core, id, answer);
}

/* It waits for blocks from below: "replies" tells how that ends. */
static void answer_waiting(struct core *core, const struct pool_found *found,
                           const struct pool_alloc_options *options, bool is_alloc,
                           struct text *answer)
{
    struct pending *pending = &core->pending[options->cookie - 1];

    pending->is_alloc = is_alloc;
    pending->is_filled = !options->is_unfilled;
    text_add(answer, "PENDING matched=%llu below=%llu", (unsigned long long)found->matched,
             (unsigned long long)found->below);
}

void core_alloc(struct core *core, const struct script_command *command, struct text *answer)
{
    struct identity identity = {0};
    struct pool_prompt prompt;
    struct pool_found found;
    struct named_session *session = core_find_session(core, command->session);
    bool is_new = !session;

    if (!core_make_prompt(core, command, &identity, &prompt, answer))
        return;
    if (is_new)
        session = core_remember_session(core, command->session);
    struct pool_name id = {session ? session->id : POOL_NONE, core->num_made};
    struct pool_alloc_options options = make_options(command);
    options.cookie = core_expect(core, command->name, false);
    int result = core_find_sequence(core, command->name)
                     ? POOL_EXISTS
                     : pool_alloc(core->pool, id, &prompt, &options, &found);
    result = core_outcome(core, options.cookie, result);
    if (result == POOL_EXISTS && prompt.shared != POOL_NONE &&
        (!core->payers[prompt.shared].is_domain ||
         pool_match(core->pool, &prompt, &found) == POOL_NOT_FOUND))
        result = POOL_NOT_FOUND; /* "in that order" */
    core_tokens_finish(&prompt.tokens);
    if (result != 0 && result != POOL_PENDING) {
        core_identity_finish(&identity);
        if (is_new && session) { /* a refusal does not make the session known */
            (void)pool_session_end(core->pool, session->id, false, NULL);
            core->num_sessions--;
        }
        core_settle(core);
        (void)core_refused(answer, result);
        return;
    }
    core->num_made++;
    core_remember_sequence(core, command->name, id)->identity = identity;
    if (result == POOL_PENDING)
        answer_waiting(core, &found, &options, true, answer);
    else
        answer_found(core, &found, id, options.is_unfilled, answer);
}

void core_find(struct core *core, const struct script_command *command, struct text *answer)
{
    struct identity identity = {0};
    struct pool_prompt prompt;
    struct pool_found found;

    if (!core_make_prompt(core, command, &identity, &prompt, answer))
        return;
    int result = pool_match(core->pool, &prompt, &found);
    core_tokens_finish(&prompt.tokens);
    core_identity_finish(&identity);
    if (!core_refused(answer, result))
        text_add(answer, "matched=%llu", (unsigned long long)found.matched);
}

/* All token ids of a sequence. */
static uint32_t *all_tokens(const struct core *core, struct pool_name id, uint64_t *out_count)
{
    struct pool_sequence_description sequence;

    (void)pool_describe(core->pool, id, &sequence);
    *out_count = sequence.length;
    uint32_t *ids = calloc(*out_count + 1, sizeof(*ids));
    assert(ids);
    (void)pool_sequence_tokens(core->pool, id, 0, *out_count, ids);
    return ids;
}

void core_append(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *sequence = core_named(core, command, answer);
    struct pool_sequence_description description;

    if (!sequence)
        return;
    (void)pool_describe(core->pool, sequence->id, &description);
    struct pool_tokens tokens =
        core_more_tokens(core, sequence, description.length, command->tokens, command->num_tokens);
    uint64_t cookie = core_expect(core, command->name, false);
    int result = pool_append(core->pool, sequence->id, &tokens, cookie);
    core_tokens_finish(&tokens);
    core_answer_table(core, core_outcome(core, cookie, result), sequence->id, answer);
}

void core_fill(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *sequence = core_named(core, command, answer);

    if (!sequence)
        return;
    int result = pool_fill(core->pool, sequence->id);
    if (result == 0)
        result = pool_publish(core->pool, sequence->id);
    core_answer_table(core, result, sequence->id, answer);
}

void core_publish(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *sequence = core_named(core, command, answer);

    if (sequence)
        core_answer_table(core, pool_publish(core->pool, sequence->id), sequence->id, answer);
}

void core_fork(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *parent = core_named(core, command, answer);

    if (!parent)
        return;
    if (core_find_sequence(core, command->child) && core_refused(answer, POOL_EXISTS))
        return;
    struct pool_name id = {parent->id.session, core->num_made};
    if (core_refused(answer, pool_fork(core->pool, parent->id, id.id)))
        return;
    core->num_made++;
    struct named_sequence *child = core_remember_sequence(core, command->child, id);
    parent = core_find_sequence(core, command->name);
    child->identity = parent->identity;
    const struct script_command extras = {.extras =
                                              (const struct script_extra *)parent->identity.extras,
                                          .num_extras = parent->identity.num_extras};
    core_copy_extras(&extras, &child->identity);
    core_answer_table(core, 0, id, answer);
}
_Static_assert(sizeof(struct script_extra) == sizeof(struct key_extra), "copied as one");

void core_truncate(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *sequence = core_named(core, command, answer);

    if (!sequence)
        return;
    uint64_t cookie = core_expect(core, command->name, false);
    int result = pool_truncate(core->pool, sequence->id, command->number, cookie);
    core_answer_table(core, core_outcome(core, cookie, result), sequence->id, answer);
}

void core_preempt(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *sequence = core_named(core, command, answer);

    if (!sequence)
        return;
    uint64_t cookie = core_expect(core, command->name, false);
    int result = pool_preempt(core->pool, sequence->id, cookie);
    if (!core_refused(answer, core_outcome(core, cookie, result)))
        text_add(answer, "ok");
}

void core_resume(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_sequence *sequence = core_named(core, command, answer);
    struct pool_alloc_options options = make_options(command);
    struct pool_found found;
    uint64_t count;

    if (!sequence)
        return;
    options.cookie = core_expect(core, command->name, false);
    uint32_t *ids = all_tokens(core, sequence->id, &count);
    struct pool_tokens tokens = core_make_tokens(core, &sequence->identity, ids, count);
    int result = pool_resume(core->pool, sequence->id, &tokens, &options, &found);
    core_tokens_finish(&tokens);
    free(ids);
    result = core_outcome(core, options.cookie, result);
    if (result == POOL_PENDING)
        answer_waiting(core, &found, &options, false, answer);
    else if (!core_refused(answer, result))
        answer_found(core, &found, sequence->id, options.is_unfilled, answer);
}

void core_release(struct core *core, const struct script_command *command, struct text *answer)
{
    struct named_sequence *sequence = core_named(core, command, answer);

    if (!sequence)
        return;
    uint64_t cookie = core_expect(core, command->name, true);
    int result = pool_release(core->pool, sequence->id, cookie);
    if (core_refused(answer, core_outcome(core, cookie, result)))
        return;
    core_forget_sequence(core, sequence);
    text_add(answer, "ok");
}

void core_end_session(struct core *core, const struct script_command *command, struct text *answer)
{
    struct named_session *session = core_find_session(core, command->name);
    uint32_t num_sequences;

    if (!session) {
        (void)core_refused(answer, POOL_NOT_FOUND);
        return;
    }
    if (core_refused(answer, pool_session_end(core->pool, session->id, command->is_attached,
                                              &num_sequences)))
        return;
    core_settle(core);
    for (size_t i = core->num_sequences; i-- > 0;) {
        if (core->sequences[i].id.session == session->id)
            core_forget_sequence(core, &core->sequences[i]);
    }
    if (command->is_attached)
        session->is_ended = true; /* until it is detached */
    else
        *session = core->sessions[--core->num_sessions];
    text_add(answer, "ok released=%u", num_sequences);
}
