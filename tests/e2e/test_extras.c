/*
 * tests/e2e/test_extras.c - the extras of a prompt are in the names of its blocks, whenever and
 * however often these are made. Every name is compared with what proto/key.h makes of the secret,
 * the tokens and the extras; that in turn is held to proto/KEYS.md by vectors of its own.
 */
#include "proto/key.h"
#include "tests/e2e/daemon.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16, PROMPT = 69, LENGTH = 80, MAX_TOKENS = 1024, MAX_KEYS = MAX_TOKENS / BLOCK };

static const char token_b[] = "token-of-tenant-b-0123";
static uint8_t bytes[1024];

/* Of blocks 0, 1, 3 and 4; the prompt does not fill the last one. */
static const struct kvpool_extra extras[] = {
    {0, bytes, 16}, {1, bytes + 100, 300}, {3, bytes + 7, 1}, {4, bytes + 200, 65}};

/* An engine, and what it takes to name blocks as the daemon should. */
struct scene {
    struct daemon daemon;
    struct kvpool *kvpool;
    struct key_hasher *hasher;
    struct key_fingerprint fingerprint;
    struct kvpool_prompt prompt;
    uint32_t tokens[MAX_TOKENS];
    uint64_t last_event;
};

static void hex_read(const char *text, uint8_t out[KEY_BYTES])
{
    for (size_t i = 0; i < KEY_BYTES; i++) {
        unsigned byte;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
}

static void fingerprint_read(struct scene *scene)
{
    static const char member[] = "\"fingerprint\":\"";
    struct kvpool *operator= operator_connect(&scene->daemon);
    char json[4096];
    const struct kvpool_request list = {
        .verb = KVPOOL_LIST, .what = "models", .json = json, .json_max = sizeof(json)};

    assert_int_equal(kvpool_call(operator, & list, NULL), 0);
    const char *at = strstr(json, member);
    assert_non_null(at);
    hex_read(at + sizeof(member) - 1, scene->fingerprint.bytes);
    kvpool_disconnect(operator);
}

static int start(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    uint32_t model;

    assert_non_null(scene);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 37 + 1);
    daemon_start(&scene->daemon, "pool-bytes: 16MiB\nmax-extra-bytes: 64KiB\n"
                                 "domains:\n  - {name: commons, readers: [a], fillers: [a]}\n");
    scene->kvpool = engine_connect(&scene->daemon, NULL, 0);
    assert_non_null(scene->kvpool);
    assert_int_equal(kvpool_register_model(scene->kvpool, &small_model, &model, NULL), 0);
    assert_int_equal(key_hasher_create(&scene->hasher), 0);
    fingerprint_read(scene);
    tokens_make(scene->tokens, MAX_TOKENS, 5);
    scene->prompt = (struct kvpool_prompt){.model = model,
                                           .tokens = scene->tokens,
                                           .num_tokens = PROMPT,
                                           .extras = extras,
                                           .num_extras = ARRAY_SIZE(extras)};
    *state = scene;
    return 0;
}

static int finish(void **state)
{
    struct scene *scene = *state;

    kvpool_disconnect(scene->kvpool);
    daemon_finish(&scene->daemon);
    key_hasher_destroy(scene->hasher);
    free(scene);
    return 0;
}

/* Names of @count tokens of the tenant's own domain. */
static void name(struct scene *scene, const uint32_t *tokens, size_t count,
                 const struct kvpool_extra *list, size_t num, struct key *out)
{
    struct key_extra with[8];
    uint8_t secret[KEY_BYTES];
    char path[128];
    struct key root;

    (void)snprintf(path, sizeof(path), "%s/state/secrets/a", scene->daemon.dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(secret, 1, sizeof(secret), file), sizeof(secret));
    fclose(file);
    const struct key_root_fields fields = {.domain_secret = secret, .model = &scene->fingerprint};
    assert_int_equal(key_root(scene->hasher, &fields, &root), 0);
    for (size_t i = 0; i < num; i++)
        with[i] = (struct key_extra){list[i].block, list[i].bytes, list[i].num_bytes};
    const struct key_prompt prompt = {.parent = &root,
                                      .tokens = tokens,
                                      .num_tokens = count,
                                      .block_tokens = BLOCK,
                                      .extras = with,
                                      .num_extras = num,
                                      .out = out};
    assert_int_equal(key_chain(scene->hasher, &prompt), 0);
}

/* Publishes @sequence; the blocks that are stored by it have exactly these names, in this order. */
static void expect_published(struct scene *scene, uint64_t sequence, const struct key *keys,
                             uint32_t count)
{
    static const char stored[] = "{\"stored\":true,\"key\":\"";
    static char json[65536];
    struct kvpool_request stats = {.verb = KVPOOL_STATS,
                                   .want_events = true,
                                   .after = scene->last_event,
                                   .json = json,
                                   .json_max = sizeof(json)};
    struct key key;

    assert_int_equal(kvpool_publish(scene->kvpool, sequence), 0);
    assert_int_equal(kvpool_call(scene->kvpool, &stats, NULL), 0);
    const char *at = strstr(json, "\"last\":");
    assert_non_null(at);
    scene->last_event = strtoull(at + 7, NULL, 10);
    for (uint32_t i = 0; i < count; i++) {
        at = strstr(at, stored);
        assert_non_null(at);
        at += sizeof(stored) - 1;
        hex_read(at, key.bytes);
        assert_memory_equal(key.bytes, keys[i].bytes, KEY_BYTES);
    }
    assert_null(strstr(at, stored));
}

static void append(struct scene *scene, uint64_t sequence, uint32_t first, uint32_t end)
{
    assert_int_equal(
        kvpool_append(scene->kvpool, sequence, scene->tokens + first, end - first, NULL), 0);
}

static void take(struct scene *scene, uint64_t sequence, uint64_t count)
{
    const struct kvpool_allocate_options options = {.has_take = true, .take = count};
    struct kvpool_result result;

    assert_int_equal(kvpool_allocate(scene->kvpool, sequence, &scene->prompt, &options, &result),
                     0);
    assert_int_equal(result.matched, 0);
    assert_int_equal(result.length, count);
}

static uint64_t matched(struct scene *scene, const struct kvpool_prompt *prompt)
{
    struct kvpool_result result;

    assert_int_equal(kvpool_match(scene->kvpool, prompt, &result), 0);
    return result.matched;
}

/* ---- in parts ------------------------------------------------------------------------------- */

static void what_is_taken_in_parts_has_its_extras(void **state)
{
    struct scene *scene = *state;
    struct key keys[MAX_KEYS];

    name(scene, scene->tokens, LENGTH, extras, ARRAY_SIZE(extras), keys);
    take(scene, 1, 20);
    expect_published(scene, 1, keys, 1);
    append(scene, 1, 20, 50); /* blocks 1 and 2 */
    expect_published(scene, 1, keys + 1, 2);
    append(scene, 1, 50, PROMPT);
    append(scene, 1, PROMPT, LENGTH); /* block 4 has tokens of the prompt, and others */
    expect_published(scene, 1, keys + 3, 2);
    struct kvpool_prompt prompt = scene->prompt;
    assert_int_equal(matched(scene, &prompt), 64);
    prompt.num_extras = 0;
    assert_int_equal(matched(scene, &prompt), 0);
}

static void nothing_may_be_taken_at_first(void **state)
{
    struct scene *scene = *state;
    struct key keys[MAX_KEYS];

    name(scene, scene->tokens, LENGTH, extras, ARRAY_SIZE(extras), keys);
    take(scene, 1, 0);
    append(scene, 1, 0, LENGTH);
    expect_published(scene, 1, keys, 5);
}

/* More blocks than the daemon names by itself: a thread does it. */
static void a_long_rest_has_its_extras_too(void **state)
{
    static uint32_t tokens[300 * BLOCK];
    static struct key keys[300];
    struct scene *scene = *state;
    const struct kvpool_extra late[] = {{2, bytes, 40}, {299, bytes + 3, 70}};

    tokens_make(tokens, ARRAY_SIZE(tokens), 6);
    scene->prompt.tokens = tokens;
    scene->prompt.num_tokens = ARRAY_SIZE(tokens);
    scene->prompt.extras = late;
    scene->prompt.num_extras = ARRAY_SIZE(late);
    name(scene, tokens, ARRAY_SIZE(tokens), late, ARRAY_SIZE(late), keys);
    take(scene, 1, 40);
    expect_published(scene, 1, keys, 2);
    assert_int_equal(kvpool_append(scene->kvpool, 1, tokens + 40, ARRAY_SIZE(tokens) - 40, NULL),
                     0);
    assert_int_equal(kvpool_publish(scene->kvpool, 1), 0);
    scene->prompt.raw = true;
    assert_int_equal(matched(scene, &scene->prompt), ARRAY_SIZE(tokens));
}

/* All layers of one step of one sequence; it commits, and publishes. */
static void step(struct scene *scene, uint64_t sequence, uint32_t first, uint32_t end)
{
    const struct kvpool_row row = {sequence, scene->tokens + first, end - first};
    uint64_t number, q, k, v, out;
    const uint64_t size = (end - first) * 4 * 16 * sizeof(float);

    kvpool_staging_reset(scene->kvpool);
    assert_int_equal(kvpool_staging_take(scene->kvpool, size, &q), 0);
    assert_int_equal(kvpool_staging_take(scene->kvpool, size, &k), 0);
    assert_int_equal(kvpool_staging_take(scene->kvpool, size, &v), 0);
    assert_int_equal(kvpool_staging_take(scene->kvpool, size, &out), 0);
    assert_int_equal(kvpool_step(scene->kvpool, &row, 1, &number), 0);
    for (uint32_t layer = 0; layer < 2; layer++) {
        const struct kvpool_attend attend = {.step = number,
                                             .layer = layer,
                                             .dtype = KVPOOL_F32,
                                             .q_offset = q,
                                             .k_offset = k,
                                             .v_offset = v,
                                             .out_offset = out};
        assert_int_equal(kvpool_attend(scene->kvpool, &attend), 0);
    }
}

static void what_steps_add_has_its_extras(void **state)
{
    struct scene *scene = *state;
    const struct kvpool_allocate_options options = {.unfilled = true, .has_take = true, .take = 20};
    struct key keys[MAX_KEYS];

    name(scene, scene->tokens, LENGTH, extras, ARRAY_SIZE(extras), keys);
    assert_int_equal(kvpool_allocate(scene->kvpool, 1, &scene->prompt, &options, NULL), 0);
    step(scene, 1, 0, 40); /* 20 that it has, 20 that are new */
    step(scene, 1, 40, 79);
    step(scene, 1, 79, LENGTH); /* a token that fills a block */
    expect_published(scene, 1, keys, 5);
}

/* ---- cut, shared, gone and come back -------------------------------------------------------- */

static void a_block_that_is_cut_is_named_with_its_extra_again(void **state)
{
    struct scene *scene = *state;
    uint32_t other[LENGTH];
    struct key keys[MAX_KEYS];

    assert_int_equal(kvpool_allocate(scene->kvpool, 1, &scene->prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_truncate(scene->kvpool, 1, 24), 0); /* inside block 1 */
    memcpy(other, scene->tokens, sizeof(other));
    for (uint32_t i = 24; i < LENGTH; i++)
        other[i] += 1000;
    assert_int_equal(kvpool_append(scene->kvpool, 1, other + 24, LENGTH - 24, NULL), 0);
    /* Blocks 3 and 4 were cut off whole: what comes there now is another text. */
    name(scene, other, LENGTH, extras, 2, keys);
    expect_published(scene, 1, keys, 5);
}

static void a_block_that_is_cut_at_its_start_is_another_one(void **state)
{
    struct scene *scene = *state;
    struct key keys[MAX_KEYS];

    assert_int_equal(kvpool_allocate(scene->kvpool, 1, &scene->prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_truncate(scene->kvpool, 1, 16), 0);
    append(scene, 1, 16, LENGTH);
    name(scene, scene->tokens, LENGTH, extras, 1, keys);
    expect_published(scene, 1, keys, 5);
}

static void a_fork_has_the_extras_of_its_own(void **state)
{
    struct scene *scene = *state;
    struct key keys[MAX_KEYS];

    take(scene, 1, 20);
    assert_int_equal(kvpool_fork(scene->kvpool, 1, 2), 0);
    assert_int_equal(kvpool_fork(scene->kvpool, 1, 3), 0);
    assert_int_equal(kvpool_truncate(scene->kvpool, 1, 0), 0); /* its forks go on as they were */
    assert_int_equal(kvpool_release(scene->kvpool, 1), 0);
    append(scene, 2, 20, LENGTH);
    name(scene, scene->tokens, LENGTH, extras, ARRAY_SIZE(extras), keys);
    expect_published(scene, 2, keys, 5);
    assert_int_equal(kvpool_release(scene->kvpool, 2), 0);
    assert_int_equal(kvpool_truncate(scene->kvpool, 3, 17), 0);
    append(scene, 3, 18, LENGTH + 1); /* not the same tokens */
    uint32_t other[LENGTH];
    memcpy(other, scene->tokens, 17 * sizeof(*other));
    memcpy(other + 17, scene->tokens + 18, (LENGTH - 17) * sizeof(*other));
    name(scene, other, LENGTH, extras, 2, keys);
    expect_published(scene, 3, keys + 1, 4); /* block 0 is there */
}

static void a_preempted_sequence_keeps_its_extras(void **state)
{
    struct scene *scene = *state;
    struct kvpool *operator= operator_connect(&scene->daemon);
    const struct kvpool_request clear = {.verb = KVPOOL_CLEAR};
    const struct kvpool_allocate_options options = {.has_take = true, .take = 20};
    struct kvpool_result result;
    struct key keys[MAX_KEYS];

    name(scene, scene->tokens, LENGTH, extras, ARRAY_SIZE(extras), keys);
    assert_int_equal(kvpool_allocate(scene->kvpool, 1, &scene->prompt, NULL, NULL), 0);
    expect_published(scene, 1, keys, 4);
    assert_int_equal(kvpool_preempt(scene->kvpool, 1), 0);
    assert_int_equal(kvpool_resume(scene->kvpool, 1, NULL, &result), 0);
    assert_int_equal(result.matched, 64);
    assert_int_equal(kvpool_preempt(scene->kvpool, 1), 0);
    assert_int_equal(kvpool_call(operator, & clear, NULL), 0);
    assert_int_equal(kvpool_resume(scene->kvpool, 1, &options, &result), 0);
    assert_int_equal(result.matched, 0);
    assert_int_equal(result.length, 20);
    append(scene, 1, 20, LENGTH);
    expect_published(scene, 1, keys, 5);
    kvpool_disconnect(operator);
}

/* The names of the shared chain are made again by a resume: with the extras. */
static void a_resume_finds_what_it_began_with_in_a_shared_domain(void **state)
{
    struct scene *scene = *state;
    struct kvpool_prompt prompt = scene->prompt;
    struct kvpool_result result;
    uint32_t slots[8], generations[8];
    struct kvpool_table table = {.slots = slots, .generations = generations, .max = 8};
    const struct kvpool_allocate_options options = {.tables = &table, .num_tables = 1};

    prompt.fill_domain = "commons";
    assert_int_equal(kvpool_allocate(scene->kvpool, 1, &prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_publish(scene->kvpool, 1), 0);
    assert_int_equal(kvpool_release(scene->kvpool, 1), 0);
    prompt.fill_domain = NULL;
    prompt.shared_domain = "commons";
    assert_int_equal(kvpool_allocate(scene->kvpool, 2, &prompt, &options, &result), 0);
    assert_int_equal(result.matched, 64);
    assert_int_equal(table.num_shared, 4);
    assert_int_equal(kvpool_preempt(scene->kvpool, 2), 0);
    assert_int_equal(kvpool_resume(scene->kvpool, 2, &options, &result), 0);
    assert_int_equal(result.matched, 64);
    assert_int_equal(table.num_shared, 4);
}

/* ---- caps ----------------------------------------------------------------------------------- */

/* 30 extras of 1000 bytes are 126 of 256 chunks; a quarter of them is each tenant's part. */
static void over_the_cap_there_is_an_answer(void **state)
{
    struct scene *scene = *state;
    struct kvpool_extra many[30];
    struct kvpool *other = engine_connect(&scene->daemon, token_b, 0);

    for (uint32_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = (struct kvpool_extra){i, bytes, 1000};
    scene->prompt.num_tokens = ARRAY_SIZE(many) * BLOCK;
    scene->prompt.extras = many;
    scene->prompt.num_extras = ARRAY_SIZE(many);
    struct kvpool_prompt *prompt = &scene->prompt, theirs = scene->prompt;
    assert_int_equal(kvpool_allocate(scene->kvpool, 1, prompt, NULL, NULL), 0);
    assert_int_equal(kvpool_allocate(scene->kvpool, 2, prompt, NULL, NULL), KVPOOL_LIMIT);
    assert_int_equal(kvpool_fork(scene->kvpool, 1, 3), 0); /* shares them */
    assert_int_equal(kvpool_release(scene->kvpool, 1), 0);
    assert_int_equal(kvpool_allocate(scene->kvpool, 2, prompt, NULL, NULL), KVPOOL_LIMIT);
    assert_int_equal(kvpool_register_model(other, &small_model, &theirs.model, NULL), 0);
    theirs.num_extras = 10; /* 42 chunks of its 64 */
    assert_int_equal(kvpool_allocate(other, 1, &theirs, NULL, NULL), 0);
    assert_int_equal(kvpool_release(scene->kvpool, 3), 0);
    assert_int_equal(kvpool_allocate(scene->kvpool, 2, prompt, NULL, NULL), 0);
    kvpool_disconnect(scene->kvpool); /* what it held is given back */
    scene->kvpool = engine_connect(&scene->daemon, NULL, 0);
    assert_int_equal(kvpool_register_model(scene->kvpool, &small_model, &prompt->model, NULL), 0);
    uint64_t end = now_ms() + 5000;
    int answer;
    do
        answer = kvpool_allocate(scene->kvpool, 1, prompt, NULL, NULL);
    while (answer == KVPOOL_LIMIT && now_ms() < end);
    assert_int_equal(answer, 0);
    kvpool_disconnect(other);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)
    const struct CMUnitTest tests[] = {
        TEST(what_is_taken_in_parts_has_its_extras),
        TEST(nothing_may_be_taken_at_first),
        TEST(a_long_rest_has_its_extras_too),
        TEST(what_steps_add_has_its_extras),
        TEST(a_block_that_is_cut_is_named_with_its_extra_again),
        TEST(a_block_that_is_cut_at_its_start_is_another_one),
        TEST(a_fork_has_the_extras_of_its_own),
        TEST(a_preempted_sequence_keeps_its_extras),
        TEST(a_resume_finds_what_it_began_with_in_a_shared_domain),
        TEST(over_the_cap_there_is_an_answer),
    };
#undef TEST

    return cmocka_run_group_tests(tests, NULL, NULL);
}
