/* daemon/adopt.c - jobs, one a granule, over what is kept: adopted; or adopted, copied, given up.
 */
#include "daemon/adopt.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUM_JOBS = 16, /* granules under way at a time */
    NO_JOB = NUM_JOBS
};

enum plan {
    PLAN_OTHER, /* of another tier: not ours */
    PLAN_IN_PLACE,
    PLAN_COPY,
    PLAN_DROP
};

/* One of kept->arenas, and what is to become of it. */
struct source {
    enum plan plan;
    uint32_t arena;  /* of the device, where it is adopted */
    uint32_t target; /* where its blocks are to be: the same, if in place */
    struct gpu_arena_options options;
    struct records *table;            /* of the target; NULL: it is dropped */
    uint64_t *granules;               /* bits of those that are wanted */
    uint32_t *target_of;              /* PLAN_COPY: granule of the target, of each */
    uint32_t num_left;                /* of them, not over */
    bool is_begun, is_open, is_ended; /* is_open: in the device */
};

enum job_state {
    JOB_FREE,
    JOB_ADOPT,  /* is it whole? */
    JOB_COMMIT, /* memory for the target */
    JOB_MOVE,   /* there was none: the source's */
    JOB_COPY,   /* slot by slot */
    JOB_GIVE_UP /* the source's */
};

struct job {
    enum job_state state;
    bool is_queued; /* else it is to be given to the device */
    bool is_filled; /* the target has memory */
    uint32_t source, granule;
    uint32_t slot, end; /* JOB_COPY: next of the source; end of the batch under way */
};

struct adopt {
    struct adopt_options options;
    struct source *sources; /* as kept->arenas */
    struct job jobs[NUM_JOBS];
    uint32_t next_source, next_granule; /* of those without a job yet */
    uint32_t num_operations;
    uint64_t mark; /* of the keeper, when all targets were handed over */
    struct adopt_progress progress;
};

static bool is_wanted(const struct source *source, uint32_t granule)
{
    return (source->granules[granule / 64] >> granule % 64 & 1) != 0;
}

static void unwant(struct source *source, uint32_t granule)
{
    source->granules[granule / 64] &= ~(UINT64_C(1) << granule % 64);
    source->num_left--;
}

/* Its memory is another's next: a record that stayed would name what is not there. */
static void records_drop(struct source *source, uint32_t granule)
{
    uint32_t slots = source->options.granule.slots;

    for (uint32_t slot = granule * slots + 1; slot <= (granule + 1) * slots; slot++)
        records_clear(source->table, slot);
}

static uint64_t cookie_of(const struct adopt *adopt, uint32_t job)
{
    return adopt->options.cookie | job;
}

/* ---- what is to become of each -------------------------------------------------------------- */

static bool is_target(const struct adopt *adopt, uint32_t arena)
{
    for (uint32_t i = 0; i < adopt->options.kept->num_arenas; i++) {
        if (adopt->sources[i].plan == PLAN_IN_PLACE && adopt->sources[i].target == arena)
            return true;
    }
    return false;
}

static void source_plan(struct adopt *adopt, uint32_t number)
{
    const struct records *records = adopt->options.kept->arenas[number].records;
    struct source *source = &adopt->sources[number];

    if (!records || records_describe(records)->tier != adopt->options.tier)
        return;
    const struct records_options *options = records_describe(records);
    source->num_left = records_granules(records, source->granules);
    source->target = adopt->options.sink.find(adopt->options.sink.context, options);
    source->arena = adopt->options.first_spare + number;
    if (source->target == GPU_NO_ARENA || source->num_left == 0)
        source->plan = PLAN_DROP;
    else if (records_is_writable(records) || is_target(adopt, source->target))
        source->plan = PLAN_COPY;
    else
        source->plan = PLAN_IN_PLACE;
    if (source->plan == PLAN_IN_PLACE)
        source->arena = source->target;
}

static void refused(struct adopt *adopt, struct source *source, uint32_t granule, int err)
{
    unwant(source, granule);
    adopt->progress.granules_refused++;
    adopt->progress.problem = err;
}

/* T3 */
static void claim_in_place(struct adopt *adopt, struct source *source)
{
    const struct adopt_sink *sink = &adopt->options.sink;

    for (uint32_t granule = 0; granule < source->options.max_granules; granule++) {
        if (!is_wanted(source, granule))
            continue;
        int err = sink->claim(sink->context, source->target, granule);
        if (!err)
            continue;
        refused(adopt, source, granule, err);
        records_drop(source, granule);
    }
}

static void claim_elsewhere(struct adopt *adopt, struct source *source)
{
    const struct adopt_sink *sink = &adopt->options.sink;
    uint32_t next = 0;

    for (uint32_t granule = 0; granule < source->options.max_granules; granule++) {
        int err = -EEXIST;
        if (!is_wanted(source, granule))
            continue;
        while (err == -EEXIST && next < source->options.max_granules)
            err = sink->claim(sink->context, source->target, next++);
        if (err)
            refused(adopt, source, granule, err);
        else
            source->target_of[granule] = next - 1;
    }
}

static uint32_t target_granule(const struct source *source, uint32_t granule)
{
    return source->plan == PLAN_COPY ? source->target_of[granule] : granule;
}

static void claims_void(struct adopt *adopt, struct source *source)
{
    const struct adopt_sink *sink = &adopt->options.sink;

    for (uint32_t granule = 0; source->table && granule < source->options.max_granules; granule++) {
        if (is_wanted(source, granule))
            sink->failed(sink->context, source->target, target_granule(source, granule));
    }
    memset(source->granules, 0,
           (source->options.max_granules / 64 + 1) * sizeof(*source->granules));
    source->num_left = 0;
}

static int source_adopt(struct adopt *adopt, uint32_t number)
{
    struct kept_arena *kept = &adopt->options.kept->arenas[number];
    struct source *source = &adopt->sources[number];
    int err = gpu_arena_adopt(adopt->options.device, source->arena, &source->options, kept->files,
                              source->granules, cookie_of(adopt, NO_JOB));

    if (err)
        return err == GPU_BUSY ? -EBUSY : err;
    adopt->num_operations++;
    source->is_open = true;
    kept->files = (struct gpu_arena_files){-1, -1};
    return 0;
}

/* Of one that is of no use, or cannot be adopted as planned, at least the memory is to go. */
static void source_drop(struct adopt *adopt, uint32_t number)
{
    struct source *source = &adopt->sources[number];

    claims_void(adopt, source);
    source->plan = PLAN_DROP;
    source->table = NULL;
    source->arena = adopt->options.first_spare + number;
    (void)source_adopt(adopt, number); /* not of this device, then: closed with what is kept */
}

static void source_begin(struct adopt *adopt, uint32_t number)
{
    const struct adopt_sink *sink = &adopt->options.sink;
    struct kept_arena *kept = &adopt->options.kept->arenas[number];
    struct source *source = &adopt->sources[number];

    int err = -ENOMEM; /* without a table of the target */

    source->is_begun = true;
    if (source->plan == PLAN_COPY) {
        source->table = sink->open(sink->context, source->target);
        if (source->table)
            claim_elsewhere(adopt, source);
    } else if (source->plan == PLAN_IN_PLACE) {
        source->table = kept->records;
        claim_in_place(adopt, source);
    }
    if (source->table)
        err = source_adopt(adopt, number);
    if (err && source->plan != PLAN_DROP) {
        adopt->progress.arenas_failed++;
        adopt->progress.problem = err;
    }
    if (err)
        source_drop(adopt, number);
    adopt->progress.arenas_adopted += source->plan == PLAN_IN_PLACE;
    adopt->progress.arenas_copied += source->plan == PLAN_COPY;
    adopt->progress.arenas_dropped += source->plan == PLAN_DROP;
    adopt->progress.granules += source->num_left;
    if (source->plan != PLAN_IN_PLACE)
        return;
    kept->records = NULL;
    sink->adopted(sink->context, source->target, kept->number, source->table);
}

/* ---- life ----------------------------------------------------------------------------------- */

static int sources_allocate(struct adopt *adopt)
{
    adopt->sources =
        calloc(adopt->options.kept->num_arenas + 1, sizeof(*adopt->sources)); /* never 0 */
    if (!adopt->sources)
        return -ENOMEM;
    for (uint32_t i = 0; i < adopt->options.kept->num_arenas; i++) {
        struct source *source = &adopt->sources[i];
        if (!adopt->options.kept->arenas[i].records)
            continue; /* another tier's, which has been adopted */
        source->options = records_describe(adopt->options.kept->arenas[i].records)->arena;
        uint32_t num_granules = source->options.max_granules;
        source->granules = calloc(num_granules / 64 + 1, sizeof(*source->granules));
        source->target_of = calloc(num_granules, sizeof(*source->target_of));
        if (!source->granules || !source->target_of)
            return -ENOMEM;
    }
    return 0;
}

int adopt_create(const struct adopt_options *options, struct adopt **out_adopt)
{
    struct adopt *adopt = calloc(1, sizeof(*adopt));
    if (!adopt)
        return -ENOMEM;

    adopt->options = *options;
    int err = sources_allocate(adopt);
    if (err) {
        adopt_destroy(adopt);
        return err;
    }
    for (uint32_t i = 0; i < options->kept->num_arenas; i++)
        source_plan(adopt, i);
    /* Those that stay first: the others may go into them. */
    for (uint32_t i = 0; i < options->kept->num_arenas; i++) {
        if (adopt->sources[i].plan == PLAN_IN_PLACE)
            source_begin(adopt, i);
    }
    for (uint32_t i = 0; i < options->kept->num_arenas; i++) {
        if (adopt->sources[i].plan != PLAN_OTHER && !adopt->sources[i].is_begun)
            source_begin(adopt, i);
    }
    adopt->mark = keep_mark(options->keep);
    *out_adopt = adopt;
    return 0;
}

void adopt_destroy(struct adopt *adopt)
{
    if (!adopt)
        return;
    for (uint32_t i = 0; adopt->sources && i < adopt->options.kept->num_arenas; i++) {
        free(adopt->sources[i].granules);
        free(adopt->sources[i].target_of);
    }
    free(adopt->sources);
    free(adopt);
}

const struct adopt_progress *adopt_progress(const struct adopt *adopt)
{
    return &adopt->progress;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static void job_end(struct adopt *adopt, struct job *job)
{
    const struct adopt_sink *sink = &adopt->options.sink;
    struct source *source = &adopt->sources[job->source];
    uint32_t granule = target_granule(source, job->granule);

    job->state = JOB_FREE;
    source->num_left--;
    adopt->progress.granules_done++;
    adopt->progress.granules_failed += !job->is_filled;
    if (!job->is_filled)
        records_drop(source, granule);
    if (job->is_filled)
        sink->restored(sink->context, source->target, granule);
    else
        sink->failed(sink->context, source->target, granule);
}

static void job_turn(struct job *job, enum job_state state)
{
    job->state = state;
    job->is_queued = false;
}

/* The slot of the target that has the same place in its granule. */
static uint32_t target_slot(const struct adopt *adopt, const struct job *job, uint32_t slot)
{
    const struct source *source = &adopt->sources[job->source];
    uint32_t slots = source->options.granule.slots;

    return source->target_of[job->granule] * slots + (slot - 1) % slots + 1;
}

/* T2: of slots [@first, @end), whose bytes are there. */
static void records_pass_on(struct adopt *adopt, const struct job *job, uint32_t first,
                            uint32_t end)
{
    const struct records *from = adopt->options.kept->arenas[job->source].records;
    struct record record;

    for (uint32_t slot = first; slot < end; slot++) {
        if (records_read(from, slot, &record) == 0)
            records_write(adopt->sources[job->source].table, target_slot(adopt, job, slot),
                          &record);
    }
}

static uint32_t granule_end_slot(const struct adopt *adopt, const struct job *job)
{
    return (job->granule + 1) * adopt->sources[job->source].options.granule.slots + 1;
}

/* Returns what the device answers; -ENOENT: there is nothing left to copy. */
static int copy_submit(struct adopt *adopt, struct job *job, uint64_t cookie)
{
    const struct source *source = &adopt->sources[job->source];
    const struct records *records = adopt->options.kept->arenas[job->source].records;
    struct gpu_copy copies[GPU_MAX_BATCH];
    struct record record;
    size_t count = 0;
    uint32_t slot = job->slot;

    for (; slot < granule_end_slot(adopt, job) && count < GPU_MAX_BATCH; slot++) {
        if (records_read(records, slot, &record) == 0)
            copies[count++] = (struct gpu_copy){
                .from = {.arena = source->arena, .slot = slot},
                .to = {.arena = source->target, .slot = target_slot(adopt, job, slot)}};
    }
    job->end = slot;
    return count > 0 ? gpu_copy(adopt->options.device, copies, count, cookie) : -ENOENT;
}

static int job_submit(struct adopt *adopt, struct job *job)
{
    struct gpu_device *device = adopt->options.device;
    const struct source *source = &adopt->sources[job->source];
    uint64_t cookie = cookie_of(adopt, (uint32_t)(job - adopt->jobs));
    uint32_t granule = target_granule(source, job->granule);

    switch (job->state) {
    case JOB_ADOPT:
        return gpu_adopt_granule(device, source->arena, job->granule, cookie);
    case JOB_COMMIT:
        return gpu_commit(device, source->target, granule, cookie);
    case JOB_MOVE:
        return gpu_move_granule(device, (struct gpu_granule_ref){source->arena, job->granule},
                                (struct gpu_granule_ref){source->target, granule}, cookie);
    case JOB_COPY:
        return copy_submit(adopt, job, cookie);
    default:
        return gpu_decommit(device, source->arena, job->granule, cookie);
    }
}

/* What follows the end of an operation, or its refusal. */
static void job_step(struct adopt *adopt, struct job *job, int status)
{
    bool is_copied = adopt->sources[job->source].plan == PLAN_COPY;

    /* Without memory for both it is moved; what stays behind goes with its arena. */
    bool is_lost = job->state != JOB_COMMIT && job->state != JOB_GIVE_UP && status != -ENOENT;
    if (status && is_lost)
        adopt->progress.problem = status;
    switch (job->state) {
    case JOB_ADOPT:
        job->is_filled = status == 0 && !is_copied;
        if (status || !is_copied)
            job_end(adopt, job); /* the source has no memory, or is where it is to be */
        else
            job_turn(job, JOB_COMMIT);
        break;
    case JOB_COMMIT:
        job->is_filled = status == 0 || status == -EALREADY;
        job_turn(job, job->is_filled ? JOB_COPY : JOB_MOVE); /* no memory for both: T1 */
        break;
    case JOB_MOVE:
        job->is_filled = status == 0;
        if (status == 0)
            records_pass_on(adopt, job, job->slot, granule_end_slot(adopt, job));
        job_turn(job, JOB_GIVE_UP); /* if it has memory still */
        break;
    case JOB_COPY:
        if (status == 0)
            records_pass_on(adopt, job, job->slot, job->end);
        job->slot = job->end;
        job_turn(job, job->slot < granule_end_slot(adopt, job) ? JOB_COPY : JOB_GIVE_UP);
        break;
    default:
        job_end(adopt, job); /* if it has memory still, it goes with its arena */
    }
}

static bool is_any_moving(const struct adopt *adopt)
{
    bool is_any = false;

    for (uint32_t i = 0; i < NUM_JOBS; i++)
        is_any |= adopt->jobs[i].state == JOB_MOVE && adopt->jobs[i].is_queued;
    return is_any;
}

/*
 * T2: an old place goes only when the keeper has the new one. And of those that go before there are
 * records of the new one, there is one at a time.
 */
static bool must_wait(const struct adopt *adopt, const struct job *job)
{
    if (job->state != JOB_MOVE && job->state != JOB_GIVE_UP)
        return false;
    return !keep_passed(adopt->options.keep, adopt->mark) ||
           (job->state == JOB_MOVE && is_any_moving(adopt));
}

/* Returns false if the device takes nothing more. */
static bool job_run(struct adopt *adopt, struct job *job)
{
    while (job->state != JOB_FREE && !job->is_queued && !must_wait(adopt, job)) {
        int answer = job_submit(adopt, job);
        if (answer == GPU_BUSY)
            return false;
        if (answer == 0) {
            job->is_queued = true;
            adopt->num_operations++;
        } else {
            job_step(adopt, job, answer);
        }
    }
    return true;
}

/* The next granule that has no job yet. */
static bool granule_next(struct adopt *adopt, uint32_t *out_source, uint32_t *out_granule)
{
    for (; adopt->next_source < adopt->options.kept->num_arenas; adopt->next_source++) {
        const struct source *source = &adopt->sources[adopt->next_source];
        bool has_jobs = source->plan == PLAN_IN_PLACE || source->plan == PLAN_COPY;
        uint32_t end = has_jobs ? source->options.max_granules : 0;
        while (adopt->next_granule < end) {
            uint32_t granule = adopt->next_granule++;
            if (!is_wanted(source, granule))
                continue;
            *out_source = adopt->next_source;
            *out_granule = granule;
            return true;
        }
        adopt->next_granule = 0;
    }
    return false;
}

static bool job_begin(struct adopt *adopt, struct job *job)
{
    uint32_t source, granule;

    if (!granule_next(adopt, &source, &granule))
        return false;
    *job = (struct job){.state = JOB_ADOPT, .source = source, .granule = granule};
    job->slot = granule * adopt->sources[source].options.granule.slots + 1;
    return true;
}

/* ---- the loop's part ------------------------------------------------------------------------ */

/* What was copied from, and what is of no use, goes: from under whoever maps it, too. */
static bool source_end(struct adopt *adopt, uint32_t number)
{
    struct source *source = &adopt->sources[number];

    if (source->is_ended || source->plan == PLAN_OTHER)
        return true;
    if (source->plan == PLAN_IN_PLACE || !source->is_open) {
        if (source->plan != PLAN_IN_PLACE)
            kept_remove(adopt->options.keep, adopt->options.kept->arenas[number].number);
        source->is_ended = true;
        return true;
    }
    int answer = source->num_left > 0 ? GPU_BUSY
                                      : gpu_arena_close(adopt->options.device, source->arena,
                                                        cookie_of(adopt, NO_JOB));
    if (answer == GPU_BUSY || answer == -EBUSY)
        return false;
    adopt->num_operations += answer == 0;
    kept_remove(adopt->options.keep, adopt->options.kept->arenas[number].number);
    source->is_ended = true;
    return true;
}

bool adopt_run(struct adopt *adopt)
{
    bool is_over = true, goes_on = true;

    for (uint32_t i = 0; goes_on && i < NUM_JOBS; i++) {
        struct job *job = &adopt->jobs[i];
        do
            goes_on = job_run(adopt, job);
        while (goes_on && job->state == JOB_FREE && job_begin(adopt, job));
    }
    for (uint32_t i = 0; i < NUM_JOBS; i++)
        is_over &= adopt->jobs[i].state == JOB_FREE;
    for (uint32_t i = 0; i < adopt->options.kept->num_arenas; i++)
        is_over &= source_end(adopt, i);
    return !is_over || adopt->num_operations > 0;
}

void adopt_reaped(struct adopt *adopt, uint64_t cookie, int status)
{
    uint32_t number = (uint32_t)cookie;

    assert(adopt->num_operations > 0);
    adopt->num_operations--;
    if (number >= NUM_JOBS)
        return; /* a trim, or the end of an arena */
    struct job *job = &adopt->jobs[number];
    assert(job->state != JOB_FREE && job->is_queued);
    job->is_queued = false;
    job_step(adopt, job, status);
}
