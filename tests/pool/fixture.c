/* tests/pool/fixture.c - a small pool for unit tests, a sink that remembers, and one-line verbs. */
#include "tests/pool/fixture.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 8192, MAX_KEYS = MAX_TOKENS / FIXTURE_BLOCK };

/* Granules of one page and one block in every tier below, if the pool has it. */
#define BELOW                                                                                      \
    {                                                                                              \
        {0, 0}, {1, 1},                                                                            \
        {                                                                                          \
            1, 1                                                                                   \
        }                                                                                          \
    }

/* ---- the pool ---- */

static void remember(void *context, const struct pool_effect *effect)
{
    struct fixture *f = context;

    assert_true(f->num_effects < FIXTURE_MAX_EFFECTS);
    f->effects[f->num_effects] = *effect;
    if (effect->key) {
        f->keys[f->num_effects] = *effect->key;
        f->effects[f->num_effects].key = &f->keys[f->num_effects];
    }
    if (effect->parent) {
        f->parents[f->num_effects] = *effect->parent;
        f->effects[f->num_effects].parent = &f->parents[f->num_effects];
    }
    for (uint32_t i = 0; effect->tokens && i < effect->num_tokens && i < FIXTURE_BLOCK; i++)
        f->tokens[f->num_effects][i] = effect->tokens[i];
    f->effects[f->num_effects].tokens = f->tokens[f->num_effects];
    for (uint32_t i = 0; i < effect->num_form && i < FIXTURE_BLOCK; i++)
        f->forms[f->num_effects][i] = effect->form[i];
    f->effects[f->num_effects].form = f->forms[f->num_effects];
    f->num_effects++;
}

void fixture_config(struct pool_config *config, uint64_t pages)
{
    pool_config_init(config, 256, pages);
    config->max_block_tokens = FIXTURE_BLOCK;
    config->max_sequences = 64;
    config->max_sequence_blocks = 256;
    config->max_payers = 8;
    config->max_models = 8;
    config->max_arenas = 32;
    config->max_sessions = 8;
    config->max_transfers = 16;
    config->max_waiters = 8;
    config->max_steps = 4;
    config->max_step_rows = 8;
}

struct fixture *fixture_create_with(const struct pool_config *config)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct pool_config own = *config;

    assert_non_null(f);
    own.sink = (struct pool_sink){remember, f};
    assert_int_equal(pool_create(&own, &f->pool), 0);
    assert_int_equal(add_tenant(f, 0, POOL_UNLIMITED, 1), 0);
    assert_int_equal(add_model(f, 0, 1, 1), 0);
    assert_int_equal(add_session(f), 0);
    return f;
}

struct fixture *fixture_create(uint64_t pages)
{
    struct pool_config config;

    fixture_config(&config, pages);
    return fixture_create_with(&config);
}

void fixture_tiers_config(struct pool_config *config, uint64_t pages, uint64_t host, uint64_t disk,
                          uint64_t ahead)
{
    fixture_config(config, pages);
    if (host > 0)
        config->tiers[POOL_TIER_HOST] = (struct pool_tier_config){.pages = host, .max_slots = 64};
    if (disk > 0)
        config->tiers[POOL_TIER_DISK] = (struct pool_tier_config){.pages = disk, .max_slots = 64};
    config->ahead_pages[POOL_TIER_DEVICE] = ahead;
    config->tells_places = true;
}

struct fixture *fixture_create_tiers(uint64_t pages, uint64_t host, uint64_t disk, uint64_t ahead)
{
    struct pool_config config;

    fixture_tiers_config(&config, pages, host, disk, ahead);
    return fixture_create_with(&config);
}

void fixture_destroy(struct fixture *f)
{
    pool_check(f->pool);
    pool_destroy(f->pool);
    free(f);
}

int fixture_setup(void **state)
{
    *state = fixture_create(8);
    return 0;
}

int fixture_teardown(void **state)
{
    fixture_destroy(*state);
    return 0;
}

pool_payer add_tenant(struct fixture *f, uint64_t guarantee, uint64_t limit, uint64_t weight)
{
    const struct pool_quota quota = {guarantee, limit, weight};
    pool_payer payer = POOL_NONE;

    assert_int_equal(pool_tenant_create(f->pool, &quota, &payer), 0);
    return payer;
}

pool_payer add_domain(struct fixture *f)
{
    const struct pool_quota quota = {0, POOL_UNLIMITED, 1};
    pool_payer payer = POOL_NONE;

    assert_int_equal(pool_domain_create(f->pool, &quota, &payer), 0);
    assert_int_equal(pool_domain_grant(f->pool, payer, 0, POOL_MAY_READ), 0);
    return payer;
}

pool_model add_model(struct fixture *f, uint32_t window, uint32_t slots, uint32_t pages)
{
    const struct pool_model_shape shape = {.block_tokens = FIXTURE_BLOCK,
                                           .num_layers = 2,
                                           .num_groups = 1,
                                           .groups = {{window, pages, slots, BELOW, 10}},
                                           .num_ranks = 1};
    pool_model model = POOL_NONE;

    assert_int_equal(pool_model_register(f->pool, &shape, &model), 0);
    return model;
}

pool_model add_model_of_two(struct fixture *f, uint32_t window)
{
    const struct pool_model_shape shape = {
        .block_tokens = FIXTURE_BLOCK,
        .num_layers = 2,
        .num_groups = 2,
        .groups = {{0, 1, 1, BELOW, 10}, {window, 1, 1, BELOW, 10}},
        .num_ranks = 1};
    pool_model model = POOL_NONE;

    assert_int_equal(pool_model_register(f->pool, &shape, &model), 0);
    return model;
}

pool_session add_session(struct fixture *f)
{
    pool_session session = POOL_NONE;

    assert_int_equal(pool_session_open(f->pool, &session), 0);
    return session;
}

/* ---- tokens and keys ---- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* Keys of the full blocks of @count tokens, from the first one on. */
static void make_keys(const uint32_t *ids, uint64_t count, pool_payer domain, pool_model model,
                      struct pool_key *out)
{
    uint64_t hash = mix(mix(1, domain), model);

    for (uint64_t block = 0; block < count / FIXTURE_BLOCK; block++) {
        for (uint32_t i = 0; i < FIXTURE_BLOCK; i++)
            hash = mix(hash, ids[block * FIXTURE_BLOCK + i]);
        out[block] = (struct pool_key){{0}};
        for (size_t i = 0; i < sizeof(out->bytes) / sizeof(hash); i++)
            memcpy(out[block].bytes + i * sizeof(hash), &(uint64_t){mix(hash, i)}, sizeof(hash));
    }
}

static uint32_t text_token(uint32_t seed, uint64_t position)
{
    return seed * 1000 + (uint32_t)position;
}

struct prompt_memory {
    uint32_t ids[MAX_TOKENS];
    struct pool_key keys[MAX_KEYS], shared_keys[MAX_KEYS];
};

static struct pool_prompt make_prompt(const struct request *request, struct prompt_memory *memory)
{
    pool_payer domain = request->domain ? request->domain : request->tenant;

    assert_true(request->count <= MAX_TOKENS);
    for (uint64_t i = 0; i < request->count; i++)
        memory->ids[i] = text_token(request->seed, i);
    make_keys(memory->ids, request->count, domain, request->model, memory->keys);
    make_keys(memory->ids, request->count, request->shared, request->model, memory->shared_keys);
    return (struct pool_prompt){
        .tenant = request->tenant,
        .domain = domain,
        .shared = request->shared ? request->shared : POOL_NONE,
        .model = request->model,
        .is_raw = request->is_raw,
        .tokens = {memory->ids, request->count, memory->keys,
                   request->shared ? memory->shared_keys : NULL},
    };
}

static struct pool_sequence_description describe(const struct fixture *f, uint64_t id)
{
    struct pool_sequence_description description = {0};

    (void)pool_describe(f->pool, (struct pool_name){0, id}, &description);
    return description;
}

/* What sequence @id has, and @count more of text @seed: in @memory, from where the sequence ends.
 */
static struct pool_tokens more_tokens(struct fixture *f, uint64_t id, uint64_t from, uint32_t seed,
                                      uint64_t count, struct prompt_memory *memory)
{
    struct pool_sequence_description have = describe(f, id);

    assert_true(from + count <= MAX_TOKENS);
    (void)pool_sequence_tokens(f->pool, (struct pool_name){0, id}, 0, from, memory->ids);
    for (uint64_t i = from; i < from + count; i++)
        memory->ids[i] = text_token(seed, i);
    make_keys(memory->ids, from + count, have.domain, have.model, memory->keys);
    return (struct pool_tokens){memory->ids + from, count, memory->keys + from / FIXTURE_BLOCK,
                                NULL};
}

/* ---- verbs ---- */

static int checked(struct fixture *f, int answer)
{
    pool_check(f->pool);
    return answer;
}

int request_alloc(struct fixture *f, const struct request *request)
{
    struct prompt_memory memory;
    const struct pool_prompt prompt = make_prompt(request, &memory);
    const struct pool_alloc_options options = {.is_mapped = request->is_mapped,
                                               .is_unfilled = request->is_unfilled,
                                               .take =
                                                   request->take ? request->take : POOL_TAKE_ALL,
                                               .cookie = request->cookie,
                                               .deadline_ms = request->deadline_ms};

    return checked(f, pool_alloc(f->pool, (struct pool_name){request->session, request->id},
                                 &prompt, &options, &f->found));
}

int request_match(struct fixture *f, const struct request *request)
{
    struct prompt_memory memory;
    const struct pool_prompt prompt = make_prompt(request, &memory);

    return checked(f, pool_match(f->pool, &prompt, &f->found));
}

int request_wait(struct fixture *f, const struct request *request, uint64_t deadline_ms,
                 uint64_t cookie)
{
    struct prompt_memory memory;
    const struct pool_prompt prompt = make_prompt(request, &memory);

    return checked(f, pool_wait_arriving(f->pool, request->session, &prompt, deadline_ms, cookie));
}

void must_alloc(struct fixture *f, uint64_t id, uint32_t seed, uint64_t count)
{
    assert_int_equal(alloc(f, .id = id, .seed = seed, .count = count), 0);
    assert_int_equal(publish(f, id), 0);
}

int append(struct fixture *f, uint64_t id, uint32_t seed, uint64_t count, uint64_t cookie)
{
    struct prompt_memory memory;
    const struct pool_tokens tokens =
        more_tokens(f, id, describe(f, id).length, seed, count, &memory);

    return checked(f, pool_append(f->pool, (struct pool_name){0, id}, &tokens, cookie));
}

int publish(struct fixture *f, uint64_t id)
{
    return checked(f, pool_publish(f->pool, (struct pool_name){0, id}));
}

int fill(struct fixture *f, uint64_t id)
{
    return checked(f, pool_fill(f->pool, (struct pool_name){0, id}));
}

int fork_to(struct fixture *f, uint64_t id, uint64_t child)
{
    return checked(f, pool_fork(f->pool, (struct pool_name){0, id}, child));
}

int truncate_to(struct fixture *f, uint64_t id, uint64_t num_tokens, uint64_t cookie)
{
    return checked(f, pool_truncate(f->pool, (struct pool_name){0, id}, num_tokens, cookie));
}

int release(struct fixture *f, uint64_t id, uint64_t cookie)
{
    return checked(f, pool_release(f->pool, (struct pool_name){0, id}, cookie));
}

int preempt(struct fixture *f, uint64_t id, uint64_t cookie)
{
    return checked(f, pool_preempt(f->pool, (struct pool_name){0, id}, cookie));
}

int request_prefetch(struct fixture *f, const struct request *request,
                     struct pool_prefetched *out_prefetched)
{
    struct prompt_memory memory;
    const struct pool_prompt prompt = make_prompt(request, &memory);

    return checked(f, pool_prefetch(f->pool, &prompt, out_prefetched));
}

int resume(struct fixture *f, uint64_t id)
{
    return resume_waiting(f, id, 0, 0, 0);
}

int resume_waiting(struct fixture *f, uint64_t id, uint64_t take, uint64_t cookie,
                   uint64_t deadline_ms)
{
    struct prompt_memory memory;
    struct pool_sequence_description have = describe(f, id);
    const struct pool_alloc_options options = {
        .take = take ? take : POOL_TAKE_ALL, .cookie = cookie, .deadline_ms = deadline_ms};
    struct pool_tokens tokens = more_tokens(f, id, have.length, 0, 0, &memory);

    tokens.ids = memory.ids;
    tokens.keys = memory.keys;
    tokens.count = have.length;
    if (have.shared != POOL_NONE) {
        make_keys(memory.ids, have.length, have.shared, have.model, memory.shared_keys);
        tokens.shared_keys = memory.shared_keys;
    }
    return checked(f,
                   pool_resume(f->pool, (struct pool_name){0, id}, &tokens, &options, &f->found));
}

int step_begin(struct fixture *f, const struct row *rows, uint32_t num_rows, uint32_t seed,
               uint64_t cookie, pool_step *out_step)
{
    struct prompt_memory *memory = calloc(num_rows, sizeof(*memory));
    struct pool_step_row *own = calloc(num_rows, sizeof(*own));

    assert_true(memory && own);
    for (uint32_t i = 0; i < num_rows; i++)
        own[i] = (struct pool_step_row){
            rows[i].sequence, more_tokens(f, rows[i].sequence, complete_of(f, rows[i].sequence),
                                          seed, rows[i].count, &memory[i])};
    int answer = pool_step_begin(f->pool, 0, own, num_rows, cookie, out_step);
    free(memory);
    free(own);
    return checked(f, answer);
}

int step_one(struct fixture *f, uint64_t id, uint32_t seed, uint64_t count, pool_step *out_step)
{
    return step_begin(f, &(struct row){id, count}, 1, seed, 0, out_step);
}

void attend(struct fixture *f, pool_step step, uint32_t layer)
{
    assert_int_equal(checked(f, pool_step_attend(f->pool, step, layer)), 0);
    assert_int_equal(checked(f, pool_step_attended(f->pool, step, layer, 0)), 0);
}

int copy_done(struct fixture *f, uint32_t nth, int error)
{
    return checked(
        f, pool_transfer_done(f->pool, nth_effect(f, POOL_EFFECT_COPY, nth)->transfer, error));
}

uint32_t copies_done(struct fixture *f, uint32_t nth)
{
    uint32_t count = 0;

    for (; nth < count_effects(f, POOL_EFFECT_COPY); nth++, count++)
        assert_int_equal(copy_done(f, nth, 0), 0);
    return count;
}

void advance(struct fixture *f)
{
    while (pool_advance(f->pool, 1024))
        ;
    pool_check(f->pool);
}

/* ---- what is there ---- */

uint64_t stat_of(const struct fixture *f, const char *name)
{
    struct pool_stat stats[128];
    size_t count = pool_stats(f->pool, stats, ARRAY_SIZE(stats));

    assert_true(count <= ARRAY_SIZE(stats));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(stats[i].name, name) == 0)
            return stats[i].value;
    }
    fail_msg("no counter '%s'", name);
    return 0;
}

uint32_t count_effects(const struct fixture *f, enum pool_effect_kind kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < f->num_effects; i++)
        count += f->effects[i].kind == kind;
    return count;
}

const struct pool_effect *nth_effect(const struct fixture *f, enum pool_effect_kind kind,
                                     uint32_t nth)
{
    for (uint32_t i = 0; i < f->num_effects; i++) {
        if (f->effects[i].kind == kind && nth-- == 0)
            return &f->effects[i];
    }
    fail_msg("there are fewer effects of kind %d", (int)kind);
    return NULL;
}

uint32_t count_replies(const struct fixture *f, uint64_t cookie)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < f->num_effects; i++)
        count += f->effects[i].kind == POOL_EFFECT_REPLY && f->effects[i].cookie == cookie;
    return count;
}

uint32_t arena_of(const struct fixture *f, pool_payer payer, pool_model model, uint32_t group)
{
    uint32_t arena = POOL_NONE;

    assert_int_equal(pool_arena_find(f->pool, payer, model, group, &arena), 0);
    return arena;
}

uint32_t tier_arena_of(const struct fixture *f, pool_payer payer, pool_model model, uint32_t group,
                       enum pool_tier tier)
{
    uint32_t arena = POOL_NONE;

    assert_int_equal(pool_tier_arena_find(f->pool, payer, model, group, tier, &arena), 0);
    return arena;
}

struct pool_tier_stats tier_stats(const struct fixture *f, enum pool_tier tier)
{
    struct pool_tier_stats stats;

    assert_int_equal(pool_tier_stats(f->pool, tier, &stats), 0);
    return stats;
}

uint64_t length_of(const struct fixture *f, uint64_t id)
{
    return describe(f, id).length;
}

uint64_t complete_of(const struct fixture *f, uint64_t id)
{
    return describe(f, id).num_complete;
}

void assert_table(struct fixture *f, uint64_t id, const char *expected)
{
    const struct pool_name name = {0, id};
    struct pool_place places[64];
    char got[512] = "";
    size_t at = 0;
    uint32_t count;

    for (uint32_t group = 0; pool_table(f->pool, name, group, places, 64, &count) == 0; group++) {
        assert_true(count <= ARRAY_SIZE(places));
        if (group > 0)
            at += (size_t)snprintf(got + at, sizeof(got) - at, ";");
        for (uint32_t i = 0; i < count; i++)
            at += (size_t)snprintf(got + at, sizeof(got) - at, "%s%s%u", i ? "," : "",
                                   places[i].is_shared ? "s" : "", places[i].slot);
    }
    assert_string_equal(got, expected);
}

static void assert_order(struct fixture *f, enum pool_tier tier, enum pool_order order,
                         const char *expected)
{
    uint32_t slots[64], arena = tier_arena_of(f, 0, 0, 0, tier);
    size_t count = pool_arena_order(f->pool, arena, order, slots, 64), at = 0;
    char got[512] = "";

    assert_true(count <= ARRAY_SIZE(slots));
    for (size_t i = 0; i < count; i++)
        at += (size_t)snprintf(got + at, sizeof(got) - at, "%s%u", i ? "," : "", slots[i]);
    assert_string_equal(got, expected);
}

void assert_free(struct fixture *f, const char *expected)
{
    assert_order(f, POOL_TIER_DEVICE, POOL_ORDER_FREE, expected);
}

void assert_evictable(struct fixture *f, const char *expected)
{
    assert_order(f, POOL_TIER_DEVICE, POOL_ORDER_EVICTABLE, expected);
}

void assert_tier_evictable(struct fixture *f, enum pool_tier tier, const char *expected)
{
    assert_order(f, tier, POOL_ORDER_EVICTABLE, expected);
}

void assert_reply(struct fixture *f, uint64_t cookie, int answer)
{
    assert_int_equal(count_replies(f, cookie), 1);
    for (uint32_t i = 0; i < f->num_effects; i++) {
        if (f->effects[i].kind == POOL_EFFECT_REPLY && f->effects[i].cookie == cookie)
            assert_int_equal(f->effects[i].answer, answer);
    }
}

void assert_text(struct fixture *f, uint64_t id, uint32_t seed, uint64_t count)
{
    uint32_t ids[MAX_TOKENS];

    assert_int_equal(length_of(f, id), count);
    assert_int_equal(pool_sequence_tokens(f->pool, (struct pool_name){0, id}, 0, count, ids), 0);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(ids[i], text_token(seed, i));
}
