/* tests/pool/subject_core.c - the shell's commands, carried out by the pool's core. */
#include "tests/pool/subject_core.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers -------------------------------------------------------------------------------- */

static const char *const answer_words[] = {
    [POOL_NOT_FOUND] = "NOT_FOUND", [POOL_EXISTS] = "EXISTS",
    [POOL_INVALID] = "INVALID",     [POOL_NEVER_FITS] = "NEVER_FITS",
    [POOL_QUOTA] = "QUOTA",         [POOL_NO_BLOCKS] = "NO_BLOCKS",
    [POOL_LIMIT] = "LIMIT",         [POOL_STALE] = "STALE",
    [POOL_DRAINING] = "DRAINING",   [POOL_BUSY] = "BUSY",
    [POOL_PENDING] = "PENDING",     [POOL_MISS] = "MISS",
    [POOL_TIMEOUT] = "TIMEOUT",     [POOL_FAILED] = "FAILED",
    [POOL_RETRY] = "RETRY"};

bool core_refused(struct text *text, int answer)
{
    if (answer == 0)
        return false;
    assert(answer > 0 && (size_t)answer < sizeof(answer_words) / sizeof(answer_words[0]));
    text_add(text, "%s", answer_words[answer]);
    return true;
}

/* ---- the device and the daemon's loop ------------------------------------------------------- */

void *core_grow(void *items, size_t num, size_t item_size)
{
    if ((num & (num - 1)) != 0) /* grown at 0, 1, 2, 4, 8 ... */
        return items;
    items = realloc(items, (num ? 2 * num : 1) * item_size);
    assert(items);
    return items;
}

void core_on_effect(void *context, const struct pool_effect *effect)
{
    struct core *core = context;

    if (effect->kind == POOL_EFFECT_COPY) {
        core->copies = core_grow(core->copies, core->num_copies, sizeof(*core->copies));
        core->copies[core->num_copies++] = (struct copy){*effect, false};
    } else if (effect->kind == POOL_EFFECT_REPLY && effect->cookie > 0) {
        core->replies = core_grow(core->replies, core->num_replies, sizeof(*core->replies));
        core->replies[core->num_replies++] = (struct reply){effect->cookie, effect->answer};
        core->pending[effect->cookie - 1].is_answered = true;
    }
}

void core_settle(struct core *core)
{
    do { /* what goes on may begin copies */
        for (size_t i = 0; i < core->num_copies && !core->is_holding; i++) {
            if (core->copies[i].is_done)
                continue;
            int answer = pool_transfer_done(core->pool, core->copies[i].effect.transfer, 0);
            assert(answer == 0);
        }
        if (!core->is_holding)
            core->num_copies = 0;
        while (pool_advance(core->pool, UINT32_MAX))
            ;
    } while (!core->is_holding && core->num_copies > 0);
}

/* ---- verbs that wait ------------------------------------------------------------------------ */

uint64_t core_expect(struct core *core, const char *name, bool is_release)
{
    core->pending = core_grow(core->pending, core->num_pending, sizeof(*core->pending));
    struct pending *pending = &core->pending[core->num_pending++];
    *pending = (struct pending){.is_release = is_release};
    strcpy(pending->name, name);
    return core->num_pending;
}

int core_outcome(struct core *core, uint64_t cookie, int answer)
{
    if (answer == POOL_PENDING) {
        core_settle(core);
        for (size_t i = 0; i < core->num_replies; i++) {
            if (core->replies[i].cookie != cookie)
                continue;
            answer = core->replies[i].answer;
            core->num_replies--;
            memmove(&core->replies[i], &core->replies[i + 1],
                    (core->num_replies - i) * sizeof(*core->replies));
            break;
        }
    }
    if (answer != POOL_PENDING)
        core->num_pending--;
    return answer;
}

/*
 * Sequences whose release was replied to meanwhile, or whose allocation was undone, are known no
 * more; those that got what they waited for are published, as a line that does not wait would.
 */
static void take_replies(struct core *core)
{
    for (size_t i = 0; i < core->num_replies; i++) {
        struct pending *pending = &core->pending[core->replies[i].cookie - 1];
        bool is_granted = core->replies[i].answer == 0;
        struct named_sequence *sequence =
            pending->is_release || pending->is_alloc || pending->is_filled
                ? core_find_sequence(core, pending->name)
                : NULL;
        if (sequence && (is_granted ? pending->is_release : pending->is_alloc))
            core_forget_sequence(core, sequence);
        else if (sequence && is_granted && pending->is_filled)
            (void)pool_publish(core->pool, sequence->id);
        pending->is_release = pending->is_alloc = pending->is_filled = false;
    }
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

    [VERB_HOLD_EFFECTS]    = core_hold_effects,
    [VERB_RELEASE_EFFECTS] = core_release_effects,
    [VERB_EFFECTS]         = core_effects,
    [VERB_COMPLETE]        = core_complete,
    [VERB_FAIL]            = core_fail,
    [VERB_STEP]            = core_step,
    [VERB_ATTEND]          = core_attend,
    [VERB_ATTENDED]        = core_attended,
    [VERB_END_STEP]        = core_end_step,
    [VERB_WAIT]            = core_wait,
    [VERB_CANCEL]          = core_cancel,
    [VERB_TICK]            = core_tick,
    [VERB_REPLIES]         = core_replies,
    [VERB_QUOTA]           = core_quota,
    [VERB_DETACH]          = core_detach,
    [VERB_TIER]            = core_tier,
    [VERB_STORE]           = core_store,
    [VERB_PREFETCH]        = core_prefetch,
    [VERB_TIERS]           = core_tiers,
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
    free(core->copies);
    free(core->pending);
    free(core->replies);
    free(core->steps);
    pool_destroy(core->pool);
    key_hasher_destroy(core->hasher);
    free(core);
}

static void core_run(void *self, const struct script_command *command, struct text *answer)
{
    struct core *core = self;

    if (!core->pool && command->verb != VERB_POOL) {
        text_add(answer, "error: the first line must be: pool blocks=N");
        return;
    }
    answer_verb[command->verb](core, command, answer);
    take_replies(core);
}

const struct script_subject subject_core = {
    .name = "core", .create = core_create, .destroy = core_destroy, .run = core_run};
