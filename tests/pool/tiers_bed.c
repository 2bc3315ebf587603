/* tests/pool/tiers_bed.c - slots, records and copies of three tiers; what each slot must have. */
#include "tests/pool/tiers_bed.h"

#include <string.h>

struct run run;
struct world world;

uint64_t next_random(void)
{
    run.random_state ^= run.random_state << 13;
    run.random_state ^= run.random_state >> 7;
    run.random_state ^= run.random_state << 17;
    return run.random_state;
}
uint32_t below(uint32_t bound)
{
    return (uint32_t)(next_random() % bound);
}
bool one_in(uint32_t n)
{
    return below(n) == 0;
}
uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* ---- what is where -------------------------------------------------------------------------- */

struct pool_arena_description describe(uint32_t arena)
{
    struct pool_arena_description description;

    expect(pool_arena_describe(world.pool, arena, &description) == 0);
    return description;
}

struct slot *slot_at(uint32_t arena, uint32_t slot)
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

void create_pool(void)
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
    config.store_when = run.seed % 3;
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

/* ---- what sequences have -------------------------------------------------------------------- */

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

struct pool_prompt make_prompt(const struct sequence *sequence)
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

struct pool_name name_of(const struct sequence *sequence)
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

void read_and_write(struct sequence *sequence)
{
    look_at(sequence, true);
}

void read_only(struct sequence *sequence)
{
    look_at(sequence, false);
}
