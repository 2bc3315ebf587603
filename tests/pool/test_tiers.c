/*
 * tests/pool/test_tiers.c - random verbs over three tiers; what every slot has is followed.
 *
 *   test_tiers [--seed N] [--events N] [--verbose]
 *
 * The caller's side is played here: an engine that writes blocks, copies that end late, in any
 * order and sometimes badly, records beside every slot, crashes that leave the tiers and their
 * records. What is promised, by number, and asserted after every event besides pool_check():
 *
 *  T1  A sequence that is granted has, in every slot that it matched, exactly what belongs there.
 *  T2  A slot that a copy reads, or writes, is touched by nothing else until the copy ended.
 *  T3  A record stands beside a slot from PRESENT to GONE, and the slot has what the record says.
 *  T4  STORED and REMOVED of a key alternate, and at the end every stored key has a place.
 *  T5  Who waits is replied to exactly once.
 *  T6  A place that could not be read is gone when the copy has ended.
 *  T7  When nothing is under way and nobody holds anything, no slot is reserved or quarantined.
 */
#include "tests/pool/tiers_bed.h"

#include <string.h>

static uint64_t num_hits[POOL_NUM_TIERS];
static bool is_verbose;

/* ---- what the daemon does ------------------------------------------------------------------- */

static void end_copy(uint32_t at, int error)
{
    const struct copy copy = world.copies[at];
    struct slot *from = slot_at(copy.from_arena, copy.from_slot);
    struct slot *to = slot_at(copy.arena, copy.slot);

    expect(from->bytes == copy.bytes); /* T2 */
    from->num_reads--;
    to->num_writes--;
    to->bytes = error ? GARBAGE : copy.bytes;
    world.copies[at] = world.copies[--world.num_copies];
    expect(pool_transfer_done(world.pool, copy.transfer, error) == 0);
    if (error && describe(copy.from_arena).tier != POOL_TIER_DEVICE &&
        describe(copy.arena).tier == POOL_TIER_DEVICE)
        expect(!from->record.is_there); /* T6 */
}

static void do_copy(void)
{
    for (uint32_t n = 1 + below(4); n > 0 && world.num_copies > 0; n--)
        end_copy(below(world.num_copies), one_in(12) ? -5 : 0);
}

static void do_advance(void)
{
    (void)pool_advance(world.pool, 1 + below(40));
}

static void do_tick(void)
{
    world.now_ms += below(20);
    pool_tick(world.pool, world.now_ms);
}

static void do_tier(void)
{
    static const enum pool_tier_mode modes[] = {POOL_TIER_ON, POOL_TIER_ON, POOL_TIER_READ_ONLY,
                                                POOL_TIER_OFF};

    expect(pool_tier_set(world.pool, POOL_TIER_HOST + below(2), modes[below(4)]) == 0);
}

static void do_evict(void)
{
    (void)pool_tier_evict(world.pool, below(POOL_NUM_TIERS), below(6));
}

static void do_clear(void)
{
    expect(pool_clear(world.pool, below(NUM_PAYERS), one_in(2) ? POOL_NONE : below(NUM_MODELS)) ==
           0);
}

static void do_store(void)
{
    expect(pool_session_set_store(world.pool, world.session, one_in(4) ? below(3) : 0) == 0);
}

/* The session ends, with all that it waits for; another one begins. */
static void do_end_session(void)
{
    bool is_attached = one_in(2);

    if (!one_in(10))
        return;
    expect(pool_session_end(world.pool, world.session, is_attached, NULL) == 0);
    for (uint32_t i = 0; i < NUM_SEQUENCES; i++)
        world.sequences[i].state = FREE;
    if (is_attached)
        expect(pool_session_detach(world.pool, world.session) == 0);
    pool_check(world.pool);
    while (pool_advance(world.pool, 64))
        ;
    expect(pool_session_open(world.pool, &world.session) == 0);
}

static void add_hits(void)
{
    struct pool_tier_stats stats;

    for (enum pool_tier tier = 0; tier < POOL_NUM_TIERS; tier++) {
        expect(pool_tier_stats(world.pool, tier, &stats) == 0);
        num_hits[tier] += stats.hit_tokens;
    }
}

/* All copies end, and all sequences are released: nothing may be left (T4, T5, T7). */
static void settle(void)
{
    struct pool_tier_stats stats;
    uint64_t num = 0;

    do { /* whoever goes on may publish, and what it publishes be stored at once */
        while (world.num_copies > 0)
            end_copy(0, 0);
        take_replies();
    } while (world.num_copies > 0);
    for (uint32_t i = 0; i < NUM_SEQUENCES; i++) {
        expect(world.sequences[i].state != WAITING); /* T5 */
        if (world.sequences[i].state != FREE)
            expect(pool_release(world.pool, name_of(&world.sequences[i]), 0) == 0);
        world.sequences[i].state = FREE;
    }
    for (uint32_t arena = 0; arena < MAX_ARENAS; arena++) {
        for (uint32_t slot = 0; slot < MAX_SLOTS; slot++)
            num += world.slots[arena][slot].record.is_there;
    }
    expect(num >= world.num_stored); /* T4 */
    for (enum pool_tier tier = 0; tier < POOL_NUM_TIERS; tier++) {
        expect(pool_tier_stats(world.pool, tier, &stats) == 0);
        expect(stats.reserved + stats.held + stats.quarantined == 0); /* T7 */
        expect(stats.store_bytes == 0);                               /* T7 */
    }
}

/* ---- crash, and what comes back ------------------------------------------------------------- */

static void restore_granule(uint32_t arena, uint32_t granule, const struct slot *slots)
{
    uint32_t num = describe(arena).slots_per_granule;

    int answer = pool_restore_granule(world.pool, arena, granule);
    if (answer == POOL_NO_BLOCKS || answer == POOL_LIMIT)
        return; /* an allocation took its pages meanwhile */
    expect(answer == 0);
    world.has_granule[arena][granule] = true;
    for (uint32_t at = 0; at < num; at++) {
        const struct slot *old = &slots[1 + granule * num + at];
        struct slot *slot = &world.slots[arena][1 + granule * num + at];
        *slot = (struct slot){.bytes = old->bytes};
        if (!old->record.is_there || one_in(20))
            continue;
        const struct pool_restored restored = {.slot = 1 + granule * num + at,
                                               .generation = old->record.generation,
                                               .key = old->record.key,
                                               .form = old->record.form,
                                               .num_form = BLOCK,
                                               .is_unstorable = old->record.is_unstorable,
                                               .is_generated = old->record.is_generated};
        answer = pool_restore_block(world.pool, arena, &restored);
        expect(answer == 0 || answer == POOL_EXISTS);
        if (answer == 0)
            slot->record = old->record;
        if (one_in(30))
            do_alloc();
    }
    expect(pool_restore_end(world.pool, arena, granule) == 0);
    pool_check(world.pool);
}

/* Arena numbers are those of before: the same shelves are reserved in the same order. */
static void do_crash(void)
{
    static struct world old;
    uint32_t num_arenas = 0;
    struct pool_arena_description arenas[MAX_ARENAS];

    if (!one_in(40))
        return;
    while (pool_arena_describe(world.pool, num_arenas, &arenas[num_arenas]) == 0)
        num_arenas++;
    if (one_in(2))
        settle();
    add_hits();
    pool_destroy(world.pool);
    old = world;
    memset(&world, 0, sizeof(world));
    world.now_ms = old.now_ms;
    world.cookie = old.cookie;
    create_pool();
    for (uint32_t arena = 0; arena < num_arenas; arena++)
        expect(pool_arena_reserve(world.pool, arenas[arena].domain, arenas[arena].model) == 0);
    bool has_device = one_in(2);
    for (uint32_t arena = num_arenas; arena-- > 0;) {
        if (arenas[arena].tier == POOL_TIER_DEVICE && !has_device)
            continue;
        for (uint32_t granule = 0; granule < MAX_SLOTS; granule++) {
            if (old.has_granule[arena][granule] && !world.has_granule[arena][granule])
                restore_granule(arena, granule, old.slots[arena]);
        }
    }
}

/* ---- the run -------------------------------------------------------------------------------- */

static const struct {
    void (*run)(void);
    uint32_t weight;
} events[] = {{do_alloc, 30},  {do_resume, 8},      {do_release, 16}, {do_preempt, 6},
              {do_append, 12}, {do_fork, 6},        {do_truncate, 4}, {do_alloc_unfilled, 6},
              {do_copy, 50},   {do_advance, 30},    {do_tick, 10},    {do_prefetch, 4},
              {do_cancel, 1},  {do_tier, 1},        {do_evict, 1},    {do_clear, 1},
              {do_store, 1},   {do_end_session, 1}, {do_crash, 2}};

static void step(void)
{
    uint32_t total = 0, at = 0;

    for (uint32_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        total += events[i].weight;
    uint32_t draw = below(total);
    while (draw >= events[at].weight)
        draw -= events[at++].weight;
    if (is_verbose)
        fprintf(stderr, "event %llu: %u\n", (unsigned long long)run.event, at);
    events[at].run();
    pool_check(world.pool);
    take_replies();
    pool_check(world.pool);
}

int main(int argc, char **argv)
{
    uint64_t num_events = 100000;

    run.program = argv[0];
    run.seed = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            run.seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--events") == 0 && i + 1 < argc)
            num_events = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--verbose") == 0)
            is_verbose = true;
        else
            return 2;
    }
    run.random_state = mix(run.seed, 4711) | 1;
    create_pool();
    for (run.event = 0; run.event < num_events; run.event++)
        step();
    settle();
    add_hits();
    pool_destroy(world.pool);
    printf("%llu events, %llu grants, hit tokens %llu %llu %llu\n", (unsigned long long)num_events,
           (unsigned long long)run.num_grants, (unsigned long long)num_hits[0],
           (unsigned long long)num_hits[1], (unsigned long long)num_hits[2]);
    return 0;
}
