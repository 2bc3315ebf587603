/* tests/pool/subject_core.c - the shell's commands, carried out by the pool's core. */
#include "tests/pool/subject_core.h"

#include <assert.h>
#include <stdlib.h>

/* ---- answers -------------------------------------------------------------------------------- */

static const char *const answer_words[] = {
    [POOL_NOT_FOUND] = "NOT_FOUND", [POOL_EXISTS] = "EXISTS",
    [POOL_INVALID] = "INVALID",     [POOL_NEVER_FITS] = "NEVER_FITS",
    [POOL_QUOTA] = "QUOTA",         [POOL_NO_BLOCKS] = "NO_BLOCKS",
    [POOL_LIMIT] = "LIMIT",         [POOL_STALE] = "STALE",
    [POOL_DRAINING] = "DRAINING",   [POOL_BUSY] = "BUSY"};

bool core_refused(struct text *text, int answer)
{
    if (answer == 0)
        return false;
    assert(answer > 0 && (size_t)answer < sizeof(answer_words) / sizeof(answer_words[0]));
    text_add(text, "%s", answer_words[answer]);
    return true;
}

/* ---- the device and the daemon's loop ------------------------------------------------------- */

void core_on_effect(void *context, const struct pool_effect *effect)
{
    struct core *core = context;

    if (effect->kind == POOL_EFFECT_COPY) {
        assert(core->num_copies < MAX_COPIES);
        core->copies[core->num_copies++] = effect->transfer;
    }
}

void core_settle(struct core *core)
{
    for (uint32_t i = 0; i < core->num_copies; i++) {
        int answer = pool_transfer_done(core->pool, core->copies[i], 0);
        assert(answer == 0);
    }
    core->num_copies = 0;
    while (pool_advance(core->pool, UINT32_MAX))
        ;
}

/* clang-format off */
static core_verb *const answer_verb[NUM_VERBS] = {
    [VERB_POOL]        = core_pool,
    [VERB_TENANT]      = core_payer,
    [VERB_DOMAIN]      = core_payer,
    [VERB_MODEL]       = core_model,
    [VERB_ALLOC]       = core_alloc,
    [VERB_FIND]        = core_find,
    [VERB_APPEND]      = core_append,
    [VERB_FILL]        = core_fill,
    [VERB_PUBLISH]     = core_publish,
    [VERB_FORK]        = core_fork,
    [VERB_TRUNCATE]    = core_truncate,
    [VERB_PREEMPT]     = core_preempt,
    [VERB_RESUME]      = core_resume,
    [VERB_RELEASE]     = core_release,
    [VERB_END_SESSION] = core_end_session,
    [VERB_TABLE]       = core_table,
    [VERB_FREE_LIST]   = core_free_list,
    [VERB_HOLDS]       = core_holds,
    [VERB_EVICT]       = core_evict,
    [VERB_CLEAR]       = core_clear,
    [VERB_STATS]       = core_stats,
    [VERB_CHECK]       = core_check,
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
        core_identity_finish(&core->sequences[i].identity);
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
