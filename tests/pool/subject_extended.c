/* tests/pool/subject_extended.c - the shell's lines beyond the page: see SHELL-EXTENSIONS.md. */
#include "tests/pool/subject_core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void answer_ok(int result, struct text *answer)
{
    if (!core_refused(answer, result))
        text_add(answer, "ok");
}

/* ---- copies that stay under way ------------------------------------------------------------- */

void core_hold_effects(struct core *core, const struct script_command *command, struct text *answer)
{
    (void)command;
    core->is_holding = true;
    text_add(answer, "ok");
}

void core_release_effects(struct core *core, const struct script_command *command,
                          struct text *answer)
{
    (void)command;
    core->is_holding = false;
    core_settle(core);
    text_add(answer, "ok");
}

/* "T/M/0/3": tenant, model, group, slot; "@disk": of a tier below. */
static void print_place(const struct core *core, uint32_t arena, uint32_t slot, struct text *answer)
{
    struct pool_arena_description description = {0};

    (void)pool_arena_describe(core->pool, arena, &description);
    text_add(answer, "%s/%s/%u/%u%s", core->payers[description.domain].text,
             core->models[description.model].text, description.group, slot,
             description.tier == POOL_TIER_HOST   ? "@host"
             : description.tier == POOL_TIER_DISK ? "@disk"
                                                  : "");
}

void core_effects(struct core *core, const struct script_command *command, struct text *answer)
{
    bool is_first = true;

    (void)command;
    text_add(answer, "effects=");
    for (size_t i = 0; i < core->num_copies; i++) {
        const struct pool_effect *effect = &core->copies[i].effect;
        if (core->copies[i].is_done)
            continue;
        text_add(answer, "%s%zu:", is_first ? "" : ",", i + 1);
        print_place(core, effect->from_arena, effect->from_slot, answer);
        text_add(answer, ">");
        print_place(core, effect->arena, effect->slot, answer);
        is_first = false;
    }
}

static void end_copy(struct core *core, uint64_t number, int error, struct text *answer)
{
    if (number == 0 || number > core->num_copies) {
        (void)core_refused(answer, POOL_NOT_FOUND);
        return;
    }
    struct copy *copy = &core->copies[number - 1];
    copy->is_done = true;
    int result = pool_transfer_done(core->pool, copy->effect.transfer, error);
    core_settle(core);
    answer_ok(result, answer);
}

void core_complete(struct core *core, const struct script_command *command, struct text *answer)
{
    end_copy(core, command->number, 0, answer);
}

void core_fail(struct core *core, const struct script_command *command, struct text *answer)
{
    end_copy(core, command->number, -EIO, answer);
}

void core_replies(struct core *core, const struct script_command *command, struct text *answer)
{
    (void)command;
    text_add(answer, "replies=");
    for (size_t i = 0; i < core->num_replies; i++) {
        const struct reply *reply = &core->replies[i];
        text_add(answer, "%s%s:", i ? "," : "", core->pending[reply->cookie - 1].name);
        answer_ok(reply->answer, answer);
    }
    core->num_replies = 0;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static struct named_step *find_step(const struct core *core, const char *name)
{
    for (size_t i = 0; i < core->num_steps; i++) {
        if (strcmp(core->steps[i].name, name) == 0)
            return &core->steps[i];
    }
    return NULL;
}

/* A name that is used again is the new step's. */
static void remember_step(struct core *core, const char *name, pool_step id)
{
    struct named_step *step = find_step(core, name);

    if (!step) {
        core->steps = core_grow(core->steps, core->num_steps, sizeof(*core->steps));
        step = &core->steps[core->num_steps++];
        strcpy(step->name, name);
    }
    step->id = id;
}

/* Rows with the tokens and keys of each; POOL_NOT_FOUND: a sequence is not known. */
static int make_rows(const struct core *core, const struct script_command *command,
                     struct pool_step_row *rows, size_t *out_num, pool_session *out_session)
{
    for (*out_num = 0; *out_num < command->num_rows; ++*out_num) {
        const struct script_row *row = &command->rows[*out_num];
        const struct named_sequence *sequence = core_find_sequence(core, row->sequence);
        struct pool_sequence_description description;
        if (!sequence)
            return POOL_NOT_FOUND;
        (void)pool_describe(core->pool, sequence->id, &description);
        rows[*out_num] = (struct pool_step_row){
            sequence->id.id, core_more_tokens(core, sequence, description.num_complete,
                                              command->tokens + row->first_token, row->num_tokens)};
        *out_session = sequence->id.session;
    }
    return 0;
}

void core_step(struct core *core, const struct script_command *command, struct text *answer)
{
    struct pool_step_row rows[SCRIPT_MAX_ROWS];
    pool_session session = POOL_NONE;
    pool_step id;
    size_t num_rows;

    int result = make_rows(core, command, rows, &num_rows, &session);
    if (result == 0) {
        uint64_t cookie = core_expect(core, command->name, false);
        result = pool_step_begin(core->pool, session, rows, (uint32_t)num_rows, cookie, &id);
        if (result == 0 || result == POOL_PENDING)
            remember_step(core, command->name, id);
        result = core_outcome(core, cookie, result);
    }
    for (size_t i = 0; i < num_rows; i++)
        core_tokens_finish(&rows[i].tokens);
    answer_ok(result, answer);
}

void core_attend(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_step *step = find_step(core, command->name);

    answer_ok(step ? pool_step_attend(core->pool, step->id, (uint32_t)command->number)
                   : POOL_NOT_FOUND,
              answer);
}

void core_attended(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_step *step = find_step(core, command->name);
    int result = step ? pool_step_attended(core->pool, step->id, (uint32_t)command->number,
                                           command->is_failed ? -EIO : 0)
                      : POOL_NOT_FOUND;

    core_settle(core);
    answer_ok(result, answer);
}

void core_end_step(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_step *step = find_step(core, command->name);

    if (!step) {
        (void)core_refused(answer, POOL_NOT_FOUND);
        return;
    }
    uint64_t cookie = core_expect(core, command->name, false);
    int result = pool_step_end(core->pool, step->id, command->is_commit, cookie);
    answer_ok(core_outcome(core, cookie, result), answer);
}

/* ---- requests that wait --------------------------------------------------------------------- */

void core_wait(struct core *core, const struct script_command *command, struct text *answer)
{
    struct identity identity = {0};
    struct pool_prompt prompt;
    const struct named_session *session = core_find_session(core, command->session);

    if (!session && !*command->session)
        session = core_remember_session(core, "");
    if (!session) {
        (void)core_refused(answer, POOL_NOT_FOUND);
        return;
    }
    if (!core_make_prompt(core, command, &identity, &prompt, answer))
        return;
    uint64_t cookie = core_expect(core, command->name, false);
    int result = pool_wait_arriving(core->pool, session->id, &prompt, command->deadline, cookie);
    core_tokens_finish(&prompt.tokens);
    core_identity_finish(&identity);
    answer_ok(core_outcome(core, cookie, result), answer);
}

void core_cancel(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct named_session *session = core_find_session(core, command->session);
    int result = POOL_NOT_FOUND;

    for (size_t i = 0; i < core->num_pending && session && result; i++) {
        if (!core->pending[i].is_answered && strcmp(core->pending[i].name, command->name) == 0)
            result = pool_cancel(core->pool, session->id, i + 1);
    }
    answer_ok(result, answer);
}

void core_tick(struct core *core, const struct script_command *command, struct text *answer)
{
    pool_tick(core->pool, command->number);
    core_settle(core);
    text_add(answer, "ok");
}

/* ---- the operator, and processes that are still attached ------------------------------------ */

void core_quota(struct core *core, const struct script_command *command, struct text *answer)
{
    const struct pool_quota quota = {command->guarantee, command->limit, command->weight};
    pool_payer payer = core_find_name(core->payers, core->num_payers, command->name);

    answer_ok(payer == POOL_NONE ? POOL_NOT_FOUND : pool_quota_set(core->pool, payer, &quota),
              answer);
}

void core_detach(struct core *core, const struct script_command *command, struct text *answer)
{
    for (size_t i = 0; i < core->num_sessions; i++) {
        struct named_session *session = &core->sessions[i];
        if (!session->is_ended || strcmp(session->name, command->name) != 0)
            continue;
        int result = pool_session_detach(core->pool, session->id);
        *session = core->sessions[--core->num_sessions];
        core_settle(core);
        answer_ok(result, answer);
        return;
    }
    (void)core_refused(answer, POOL_NOT_FOUND);
}
