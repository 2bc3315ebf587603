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
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/pool.h"

enum {
    BLOCK = 4,
    MAX_TOKENS = 64,
    MAX_POSITIONS = MAX_TOKENS / BLOCK,
    NUM_TEXTS = 12,
    NUM_SEQUENCES = 8,
    MAX_ARENAS = 64,
    MAX_SLOTS = 128, /* of an arena */
    MAX_COPIES = 256,
    NUM_TENANTS = 2,
    NUM_MODELS = 2,
    NUM_PAYERS = NUM_TENANTS + 1, /* and one shared domain */
    GARBAGE = 1
};

static const char *program;
static uint64_t random_state, seed, event, num_grants, num_hits[POOL_NUM_TIERS];
static bool is_verbose;

#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s: seed %llu event %llu, %s:%d: %s\n", program,                      \
                    (unsigned long long)seed, (unsigned long long)event, __FILE__, __LINE__,       \
                    #condition);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}
static uint32_t below(uint32_t bound)
{
    return (uint32_t)(next_random() % bound);
}
static bool one_in(uint32_t n)
{
    return below(n) == 0;
}
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* ---- what is where -------------------------------------------------------------------------- */

struct record {
    bool is_there;
    struct pool_key key;
    uint32_t form[BLOCK], generation;
    bool is_unstorable, is_generated;
};

struct slot {
    uint64_t bytes;                 /* stands for the block's K and V */
    uint32_t num_reads, num_writes; /* copies under way */
    struct record record;
};

struct copy {
    pool_transfer transfer;
    uint32_t from_arena, from_slot, arena, slot;
    uint64_t bytes; /* of the source when it began */
};

enum state { FREE, LIVE, PREEMPTED, WAITING };

struct sequence {
    enum state state, before; /* before: the verb that waits */
    pool_payer tenant, shared;
    pool_model model;
    uint32_t text;
    uint64_t count, written; /* tokens; of them, those whose full blocks have their bytes */
    bool is_unfilled, is_append;
    uint64_t cookie;
    int reply; /* POOL_PENDING: none yet */
};

static struct world {
    struct pool *pool;
    struct slot slots[MAX_ARENAS][MAX_SLOTS];
    bool has_granule[MAX_ARENAS][MAX_SLOTS];
    struct copy copies[MAX_COPIES];
    uint32_t num_copies;
    struct sequence sequences[NUM_SEQUENCES];
    pool_session session;
    uint64_t now_ms, cookie;
    uint64_t stored[4096]; /* hashes of (arena, key) that are stored */
    uint32_t num_stored;
    uint32_t ids[MAX_TOKENS];
    struct pool_key keys[MAX_POSITIONS], shared_keys[MAX_POSITIONS];
} world;

static struct pool_arena_description describe(uint32_t arena)
{
    struct pool_arena_description description;

    expect(pool_arena_describe(world.pool, arena, &description) == 0);
    return description;
}

static struct slot *slot_at(uint32_t arena, uint32_t slot)
{
    expect(arena < MAX_ARENAS && slot > 0 && slot < MAX_SLOTS);
    expect(world.has_granule[arena][(slot - 1) / describe(arena).slots_per_granule]);
    return &world.slots[arena][slot];
}

static uint64_t bytes_of(const struct pool_key *key, uint32_t group)
{
    uint64_t word;

    memcpy(&word, key->bytes, sizeof(word));
    return mix(word, group + 7);
}

/* ---- effects -------------------------------------------------------------------------------- */

static uint64_t stored_hash(uint32_t arena, const struct pool_key *key)
{
    uint64_t word;

    memcpy(&word, key->bytes, sizeof(word));
    return mix(word, arena);
}

static void on_stored(uint64_t hash, bool is_stored)
{
    uint32_t at = 0;

    while (at < world.num_stored && world.stored[at] != hash)
        at++;
    expect((at < world.num_stored) == !is_stored); /* T4 */
    if (is_stored) {
        expect(world.num_stored < 4096);
        world.stored[world.num_stored++] = hash;
    } else {
        world.stored[at] = world.stored[--world.num_stored];
    }
}

static void on_granule(const struct pool_effect *effect, bool is_commit)
{
    uint32_t slots = describe(effect->arena).slots_per_granule;

    expect(effect->arena < MAX_ARENAS && (effect->index + 1) * slots < MAX_SLOTS);
    expect(world.has_granule[effect->arena][effect->index] == !is_commit);
    world.has_granule[effect->arena][effect->index] = is_commit;
    for (uint32_t at = 1 + effect->index * slots; at <= (effect->index + 1) * slots; at++) {
        struct slot *slot = &world.slots[effect->arena][at];
        expect(slot->num_reads == 0 && slot->num_writes == 0 && !slot->record.is_there); /* T2 T3 */
        slot->bytes = is_commit ? 0 : GARBAGE;
    }
}

static void on_copy(const struct pool_effect *effect)
{
    struct slot *from = slot_at(effect->from_arena, effect->from_slot);
    struct slot *to = slot_at(effect->arena, effect->slot);

    expect(world.num_copies < MAX_COPIES);
    expect(from->num_writes == 0 && to->num_writes == 0 && to->num_reads == 0); /* T2 */
    expect(!to->record.is_there);                                               /* T3 */
    from->num_reads++;
    to->num_writes++;
    to->bytes = GARBAGE;
    world.copies[world.num_copies++] =
        (struct copy){effect->transfer, effect->from_arena, effect->from_slot,
                      effect->arena,    effect->slot,       from->bytes};
}

static void on_reply(const struct pool_effect *effect)
{
    for (uint32_t i = 0; i < NUM_SEQUENCES; i++) {
        struct sequence *sequence = &world.sequences[i];
        if (sequence->state != WAITING || sequence->cookie != effect->cookie)
            continue;
        expect(sequence->reply == POOL_PENDING); /* T5 */
        sequence->reply = effect->answer;
        return;
    }
    expect(!"a reply that nobody waits for"); /* T5 */
}

static void on_place(const struct pool_effect *effect)
{
    struct slot *slot = slot_at(effect->arena, effect->slot);
    struct record *record = &slot->record;

    expect(record->is_there == (effect->kind == POOL_EFFECT_GONE)); /* T3 */
    record->is_there = effect->kind == POOL_EFFECT_PRESENT;
    if (!record->is_there)
        return;
    record->key = *effect->key;
    record->generation = effect->generation;
    record->is_unstorable = effect->is_unstorable;
    record->is_generated = effect->is_generated;
    expect(effect->num_form == BLOCK);
    memcpy(record->form, effect->form, sizeof(record->form));
    expect(slot->bytes == bytes_of(effect->key, describe(effect->arena).group)); /* T3 */
}

static void on_effect(void *context, const struct pool_effect *effect)
{
    (void)context;
    switch (effect->kind) {
    case POOL_EFFECT_COMMIT:
    case POOL_EFFECT_DECOMMIT:
        on_granule(effect, effect->kind == POOL_EFFECT_COMMIT);
        break;
    case POOL_EFFECT_COPY:
        on_copy(effect);
        break;
    case POOL_EFFECT_REPLY:
        on_reply(effect);
        break;
    case POOL_EFFECT_STORED:
    case POOL_EFFECT_REMOVED:
        on_stored(stored_hash(effect->arena, effect->key), effect->kind == POOL_EFFECT_STORED);
        break;
    case POOL_EFFECT_PRESENT:
    case POOL_EFFECT_GONE:
        on_place(effect);
        break;
    }
}

/* ---- the pool ------------------------------------------------------------------------------- */

static void create_pool(void)
{
    struct pool_config config;
    struct pool_quota quota = {0, POOL_UNLIMITED, 1};
    struct pool_model_shape shape = {.block_tokens = BLOCK, .num_layers = 2, .num_ranks = 1};
    pool_payer payer;
    pool_model model;

    pool_config_init(&config, 48, 24);
    config.max_block_tokens = BLOCK;
    config.max_sequence_blocks = MAX_POSITIONS;
    config.max_sequences = NUM_SEQUENCES + 4;
    config.max_transfers = 64;
    config.max_arenas = 16;
    config.max_payers = 4;
    config.max_sessions = 4;
    config.tiers[POOL_TIER_HOST] = (struct pool_tier_config){.pages = 20, .max_slots = 64};
    config.tiers[POOL_TIER_DISK] =
        (struct pool_tier_config){.pages = 12, .max_slots = 96, .max_store_bytes = 600};
    config.ahead_pages[POOL_TIER_DEVICE] = 8;
    config.ahead_pages[POOL_TIER_HOST] = 6;
    config.store_when = seed % 3;
    config.tells_places = true;
    config.sink.emit = on_effect;
    expect(pool_create(&config, &world.pool) == 0);
    for (uint32_t i = 0; i < NUM_TENANTS; i++) {
        quota.limit = i == 1 ? 14 : POOL_UNLIMITED;
        expect(pool_tenant_create(world.pool, &quota, &payer) == 0);
    }
    quota = (struct pool_quota){2, POOL_UNLIMITED, 2};
    expect(pool_domain_create(world.pool, &quota, &payer) == 0);
    for (uint32_t i = 0; i < NUM_TENANTS; i++)
        expect(pool_domain_grant(world.pool, payer, i, POOL_MAY_READ | POOL_MAY_FILL) == 0);
    shape.num_groups = 1;
    shape.groups[0] = (struct pool_group){
        .pages = 1, .slots = 2, .below = {{0, 0}, {1, 3}, {2, 8}}, .block_bytes = 100};
    expect(pool_model_register(world.pool, &shape, &model) == 0);
    shape.num_groups = 2;
    shape.groups[0].slots = 1;
    shape.groups[1] = (struct pool_group){
        .window = 6, .pages = 1, .slots = 2, .below = {{0, 0}, {0, 0}, {1, 5}}, .block_bytes = 50};
    expect(pool_model_register(world.pool, &shape, &model) == 0);
    expect(pool_session_open(world.pool, &world.session) == 0);
}

/* ---- sequences ------------------------------------------------------------------------------ */

/* Texts share prefixes: those of one half of the alphabet begin alike. */
static void make_text(uint32_t text, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        world.ids[i] = i < 8 + 4 * (text % 3) ? 100 * (text % 4) + (uint32_t)i
                                              : 1000 * (text + 1) + (uint32_t)i;
}

static void make_keys(pool_payer domain, pool_model model, uint64_t count, struct pool_key *out)
{
    uint64_t hash = mix(mix(1, domain + 10), model + 20);

    for (uint64_t block = 0; block < count / BLOCK; block++) {
        for (uint32_t i = 0; i < BLOCK; i++)
            hash = mix(hash, world.ids[block * BLOCK + i]);
        for (uint64_t i = 0; i < 4; i++)
            memcpy(out[block].bytes + 8 * i, &(uint64_t){mix(hash, i)}, 8);
    }
}

static struct pool_prompt make_prompt(const struct sequence *sequence)
{
    make_text(sequence->text, sequence->count);
    make_keys(sequence->tenant, sequence->model, sequence->count, world.keys);
    make_keys(NUM_TENANTS, sequence->model, sequence->count, world.shared_keys);
    return (struct pool_prompt){
        .tenant = sequence->tenant == NUM_TENANTS ? 0 : sequence->tenant,
        .domain = sequence->tenant,
        .shared = sequence->shared,
        .model = sequence->model,
        .tokens = {world.ids, sequence->count, world.keys, world.shared_keys}};
}

static struct pool_name name_of(const struct sequence *sequence)
{
    return (struct pool_name){world.session, (uint64_t)(sequence - world.sequences)};
}

/* Looks at every slot of the table (T1), and writes those that are not full of what they are. */
static void look_at(struct sequence *sequence, bool may_write)
{
    struct pool_place places[MAX_POSITIONS];
    uint32_t count, arena;

    (void)make_prompt(sequence);
    for (uint32_t group = 0; group <= sequence->model; group++) {
        expect(pool_table(world.pool, name_of(sequence), group, places, MAX_POSITIONS, &count) ==
               0);
        for (uint32_t at = 0; at < count; at++) {
            if (places[at].slot == 0)
                continue;
            pool_payer domain = places[at].is_shared ? NUM_TENANTS : sequence->tenant;
            expect(pool_arena_find(world.pool, domain, sequence->model, group, &arena) == 0);
            struct slot *slot = slot_at(arena, places[at].slot);
            expect(slot->num_writes == 0); /* T2 */
            uint64_t bytes =
                at < sequence->count / BLOCK
                    ? bytes_of(places[at].is_shared ? &world.shared_keys[at] : &world.keys[at],
                               group)
                    : 3;
            if (at < sequence->written / BLOCK) {
                expect(slot->bytes == bytes); /* T1 */
            } else if (may_write) {
                expect(slot->num_reads == 0 && !slot->record.is_there); /* T2 T3 */
                slot->bytes = bytes;
            }
        }
    }
}

static void read_and_write(struct sequence *sequence)
{
    look_at(sequence, true);
}

static void read_only(struct sequence *sequence)
{
    look_at(sequence, false);
}

static void granted(struct sequence *sequence)
{
    num_grants++;
    sequence->state = LIVE;
    read_and_write(sequence);
    sequence->written = sequence->count;
    if (sequence->is_unfilled)
        expect(pool_fill(world.pool, name_of(sequence)) == 0);
    sequence->is_unfilled = false;
    if (!one_in(8))
        expect(pool_publish(world.pool, name_of(sequence)) == 0);
}

/* The last token's block is written, the others are looked at; full ones may be published. */
static void appended(struct sequence *sequence)
{
    if (sequence->written > (sequence->count - 1) / BLOCK * BLOCK)
        sequence->written = (sequence->count - 1) / BLOCK * BLOCK;
    read_and_write(sequence);
    sequence->written = sequence->count;
    if (one_in(2))
        expect(pool_publish(world.pool, name_of(sequence)) == 0);
}

/* What waited and has a reply goes on, or is undone. */
static void take_replies(void)
{
    for (uint32_t i = 0; i < NUM_SEQUENCES; i++) {
        struct sequence *sequence = &world.sequences[i];
        if (sequence->state != WAITING || sequence->reply == POOL_PENDING)
            continue;
        expect(sequence->reply == 0 || sequence->reply == POOL_RETRY ||
               sequence->reply == POOL_TIMEOUT || sequence->reply == POOL_MISS ||
               (sequence->is_append && sequence->reply == POOL_FAILED));
        bool is_append = sequence->is_append;
        sequence->is_append = false;
        sequence->state = sequence->before;
        if (is_append && sequence->reply != 0)
            sequence->count--;
        else if (is_append)
            appended(sequence);
        else if (sequence->reply == 0)
            granted(sequence);
    }
}

static struct sequence *pick(enum state state)
{
    struct sequence *sequence = &world.sequences[below(NUM_SEQUENCES)];

    return sequence->state == state ? sequence : NULL;
}

static struct pool_alloc_options begin_waiting(struct sequence *sequence)
{
    sequence->before = sequence->state;
    sequence->state = WAITING;
    sequence->cookie = ++world.cookie;
    sequence->reply = POOL_PENDING;
    return (struct pool_alloc_options){.take = POOL_TAKE_ALL,
                                       .cookie = sequence->cookie,
                                       .deadline_ms = one_in(2) ? 0 : world.now_ms + below(50)};
}

static void answered(struct sequence *sequence, int answer, const struct pool_found *found)
{
    sequence->written = found->matched;
    if (answer == 0)
        granted(sequence);
    else if (answer != POOL_PENDING)
        sequence->state = sequence->before;
    expect(answer != 0 || found->below == 0);
}

static void do_alloc(void)
{
    struct sequence *sequence = pick(FREE);
    struct pool_found found = {0};

    if (!sequence)
        return;
    *sequence = (struct sequence){.tenant = below(NUM_PAYERS),
                                  .shared = one_in(2) ? NUM_TENANTS : POOL_NONE,
                                  .model = below(NUM_MODELS),
                                  .text = below(NUM_TEXTS),
                                  .count = 1 + below(MAX_TOKENS - 1)};
    if (sequence->tenant == NUM_TENANTS)
        sequence->shared = POOL_NONE;
    const struct pool_alloc_options options = begin_waiting(sequence);
    const struct pool_prompt prompt = make_prompt(sequence);
    answered(sequence, pool_alloc(world.pool, name_of(sequence), &prompt, &options, &found),
             &found);
}

static void do_resume(void)
{
    struct sequence *sequence = pick(PREEMPTED);
    struct pool_found found = {0};

    if (!sequence)
        return;
    const struct pool_alloc_options options = begin_waiting(sequence);
    const struct pool_prompt prompt = make_prompt(sequence);
    answered(sequence, pool_resume(world.pool, name_of(sequence), &prompt.tokens, &options, &found),
             &found);
}

static void do_release(void)
{
    struct sequence *sequence = &world.sequences[below(NUM_SEQUENCES)];

    if (sequence->state == FREE)
        return;
    int answer = pool_release(world.pool, name_of(sequence), 0);
    expect(answer == (sequence->state == WAITING ? POOL_BUSY : 0)); /* T5 */
    if (answer == 0)
        sequence->state = FREE;
}

static void do_preempt(void)
{
    struct sequence *sequence = pick(LIVE);

    if (!sequence)
        return;
    expect(pool_preempt(world.pool, name_of(sequence), 0) == 0);
    sequence->state = PREEMPTED;
}

static void do_prefetch(void)
{
    struct sequence sequence = {.tenant = below(NUM_TENANTS),
                                .shared = NUM_TENANTS,
                                .model = below(NUM_MODELS),
                                .text = below(NUM_TEXTS),
                                .count = MAX_TOKENS};
    const struct pool_prompt prompt = make_prompt(&sequence);
    struct pool_prefetched prefetched;

    expect(pool_prefetch(world.pool, &prompt, &prefetched) == 0);
    expect(prefetched.present + prefetched.coming <= prefetched.matched);
}

/* One more token; a tail that others can see is copied first. */
static void do_append(void)
{
    struct sequence *sequence = pick(LIVE);

    if (!sequence || sequence->count == MAX_TOKENS)
        return;
    sequence->count++;
    struct pool_prompt prompt = make_prompt(sequence);
    prompt.tokens.ids += sequence->count - 1;
    prompt.tokens.count = 1;
    prompt.tokens.keys += (sequence->count - 1) / BLOCK;
    const struct sequence before = *sequence;
    sequence->state = WAITING;
    sequence->before = LIVE;
    sequence->is_append = true;
    sequence->reply = POOL_PENDING;
    sequence->cookie = ++world.cookie;
    int answer = pool_append(world.pool, name_of(sequence), &prompt.tokens, sequence->cookie);
    if (answer == POOL_PENDING)
        return;
    *sequence = before;
    if (answer)
        sequence->count--;
    else
        appended(sequence);
}

/* A fork reads what its parent has; neither writes what both have. */
static void do_fork(void)
{
    struct sequence *parent = pick(LIVE), *child = pick(FREE);

    if (!parent || !child)
        return;
    int answer = pool_fork(world.pool, name_of(parent), name_of(child).id);
    expect(answer == 0 || answer == POOL_LIMIT);
    if (answer)
        return;
    *child = *parent;
    read_only(child);
}

static void do_truncate(void)
{
    struct sequence *sequence = pick(LIVE);
    uint64_t count;

    if (!sequence || (count = below((uint32_t)sequence->count + 1)) == 0)
        return;
    int answer = pool_truncate(world.pool, name_of(sequence), count, 0);
    expect(answer == 0 || answer == POOL_LIMIT || answer == POOL_INVALID); /* out of the window */
    if (answer)
        return;
    sequence->count = count;
    if (sequence->written > count)
        sequence->written = count;
}

/* A chunked prefill: it takes slots for a part of its prompt, and promises what it fills. */
static void do_alloc_unfilled(void)
{
    struct sequence *sequence = pick(FREE);
    struct pool_found found = {0};

    if (!sequence)
        return;
    *sequence = (struct sequence){.tenant = below(NUM_TENANTS),
                                  .shared = POOL_NONE,
                                  .model = below(NUM_MODELS),
                                  .text = below(NUM_TEXTS),
                                  .count = 1 + below(MAX_TOKENS - 1),
                                  .is_unfilled = true};
    struct pool_alloc_options options = begin_waiting(sequence);
    options.is_unfilled = true;
    const struct pool_prompt prompt = make_prompt(sequence);
    answered(sequence, pool_alloc(world.pool, name_of(sequence), &prompt, &options, &found),
             &found);
}

static void do_cancel(void)
{
    struct sequence *sequence = pick(WAITING);

    if (sequence)
        expect(pool_cancel(world.pool, world.session, sequence->cookie) ==
               (sequence->is_append ? POOL_NOT_FOUND : 0));
}

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
        fprintf(stderr, "event %llu: %u\n", (unsigned long long)event, at);
    events[at].run();
    pool_check(world.pool);
    take_replies();
    pool_check(world.pool);
}

int main(int argc, char **argv)
{
    uint64_t num_events = 100000;

    program = argv[0];
    seed = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--events") == 0 && i + 1 < argc)
            num_events = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--verbose") == 0)
            is_verbose = true;
        else
            return 2;
    }
    random_state = mix(seed, 4711) | 1;
    create_pool();
    for (event = 0; event < num_events; event++)
        step();
    settle();
    add_hits();
    pool_destroy(world.pool);
    printf("%llu events, %llu grants, hit tokens %llu %llu %llu\n", (unsigned long long)num_events,
           (unsigned long long)num_grants, (unsigned long long)num_hits[0],
           (unsigned long long)num_hits[1], (unsigned long long)num_hits[2]);
    return 0;
}
