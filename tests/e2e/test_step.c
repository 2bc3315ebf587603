/* tests/e2e/test_step.c - steps and attends, over rings and over messages: the same answers. */
#include "tests/e2e/daemon.h"

#include "tests/support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { Q_HEADS = 4, KV_HEADS = 2, DIM = 16, LAYERS = 2, MAX_ROWS = 512 };

/* Everything that one sequence was given: K and V of each layer, by position. */
struct history {
    float k[LAYERS][MAX_ROWS][KV_HEADS][DIM], v[LAYERS][MAX_ROWS][KV_HEADS][DIM];
    uint32_t length;
};

/* Where an attend's tensors are in staging. */
struct tensors {
    uint64_t q_offset, k_offset, v_offset, out_offset;
    float *q, *k, *v, *out;
};

static float noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 23) - 1;
}

static struct tensors tensors_take(struct kvpool *kvpool)
{
    struct tensors tensors;
    uint64_t size;
    char *base = kvpool_staging(kvpool, &size);

    kvpool_staging_reset(kvpool);
    assert_int_equal(
        kvpool_staging_take(kvpool, sizeof(float) * MAX_ROWS * Q_HEADS * DIM, &tensors.q_offset),
        0);
    assert_int_equal(
        kvpool_staging_take(kvpool, sizeof(float) * MAX_ROWS * KV_HEADS * DIM, &tensors.k_offset),
        0);
    assert_int_equal(
        kvpool_staging_take(kvpool, sizeof(float) * MAX_ROWS * KV_HEADS * DIM, &tensors.v_offset),
        0);
    assert_int_equal(
        kvpool_staging_take(kvpool, sizeof(float) * MAX_ROWS * Q_HEADS * DIM, &tensors.out_offset),
        0);
    tensors.q = (float *)(void *)(base + tensors.q_offset);
    tensors.k = (float *)(void *)(base + tensors.k_offset);
    tensors.v = (float *)(void *)(base + tensors.v_offset);
    tensors.out = (float *)(void *)(base + tensors.out_offset);
    return tensors;
}

/* One row and head by definition: softmax over all earlier positions. */
static void dense(const struct history *history, uint32_t layer, uint32_t position, uint32_t head,
                  const float *q, float *out)
{
    double scores[MAX_ROWS], sum = 0, best = -INFINITY, result[DIM] = {0};
    uint32_t kv_head = head / (Q_HEADS / KV_HEADS);

    for (uint32_t at = 0; at <= position; at++) {
        scores[at] = 0;
        for (uint32_t i = 0; i < DIM; i++)
            scores[at] += (double)q[i] * (double)history->k[layer][at][kv_head][i];
        scores[at] /= sqrt(DIM);
        best = scores[at] > best ? scores[at] : best;
    }
    for (uint32_t at = 0; at <= position; at++) {
        double weight = exp(scores[at] - best);
        sum += weight;
        for (uint32_t i = 0; i < DIM; i++)
            result[i] += weight * (double)history->v[layer][at][kv_head][i];
    }
    for (uint32_t i = 0; i < DIM; i++)
        out[i] = (float)(result[i] / sum);
}

/* Attends all layers of a step of one sequence that gains @count, and compares every output. */
static void attend_all(struct kvpool *kvpool, uint64_t step, struct history *history,
                       uint32_t count, uint32_t seed)
{
    struct tensors tensors = tensors_take(kvpool);

    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t i = 0; i < count * Q_HEADS * DIM; i++)
            tensors.q[i] = noise(&seed);
        for (uint32_t i = 0; i < count * KV_HEADS * DIM; i++) {
            tensors.k[i] = noise(&seed);
            tensors.v[i] = noise(&seed);
        }
        memcpy(history->k[layer][history->length], tensors.k, count * sizeof(history->k[layer][0]));
        memcpy(history->v[layer][history->length], tensors.v, count * sizeof(history->v[layer][0]));
        const struct kvpool_attend attend = {.step = step,
                                             .layer = layer,
                                             .dtype = KVPOOL_F32,
                                             .q_offset = tensors.q_offset,
                                             .k_offset = tensors.k_offset,
                                             .v_offset = tensors.v_offset,
                                             .out_offset = tensors.out_offset};
        int answer = kvpool_attend(kvpool, &attend);
        if (answer)
            print_error("attend: %s: %s\n", kvpool_status_name(answer), kvpool_message(kvpool));
        assert_int_equal(answer, 0);
        for (uint32_t row = 0; row < count; row++) {
            for (uint32_t head = 0; head < Q_HEADS; head++) {
                float expected[DIM];
                const size_t at = ((size_t)row * Q_HEADS + head) * DIM;
                dense(history, layer, history->length + row, head, &tensors.q[at], expected);
                for (uint32_t i = 0; i < DIM; i++)
                    assert_true(fabsf(expected[i] - tensors.out[at + i]) < 1e-4f);
            }
        }
    }
    history->length += count;
}

static uint64_t step_one(struct kvpool *kvpool, uint64_t sequence, const uint32_t *tokens,
                         uint32_t count)
{
    const struct kvpool_row row = {sequence, tokens, count};
    uint64_t step = 0;
    int answer = kvpool_step(kvpool, &row, 1, &step);

    if (answer)
        print_error("step: %s: %s\n", kvpool_status_name(answer), kvpool_message(kvpool));
    assert_int_equal(answer, 0);
    return step;
}

/* Prefill, decode, a fork that diverges, a hit: what dense attention over all of it gives. */
static void attend_as_dense(struct kvpool *kvpool)
{
    static uint32_t tokens[MAX_ROWS];
    struct history *history = calloc(2, sizeof(*history)), *forked = &history[1];
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    struct kvpool_result result;
    uint32_t model;

    assert_int_equal(kvpool_register_model(kvpool, &small_model, &model, NULL), 0);
    tokens_make(tokens, MAX_ROWS, 21);
    const struct kvpool_prompt prompt = {.model = model, .tokens = tokens, .num_tokens = 100};
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, &unfilled, NULL), 0);
    attend_all(kvpool, step_one(kvpool, 1, tokens, 60), history, 60, 1);
    attend_all(kvpool, step_one(kvpool, 1, tokens + 60, 40), history, 40, 2);
    for (uint32_t at = 100; at < 105; at++)
        attend_all(kvpool, step_one(kvpool, 1, tokens + at, 1), history, 1, at);
    assert_int_equal(kvpool_fork(kvpool, 1, 2), 0);
    *forked = *history;
    attend_all(kvpool, step_one(kvpool, 2, tokens + 7, 3), forked, 3, 500);
    attend_all(kvpool, step_one(kvpool, 1, tokens + 105, 30), history, 30, 501);
    attend_all(kvpool, step_one(kvpool, 2, tokens + 9, 30), forked, 30, 502);
    /* Full blocks were published by the steps: a new sequence starts with them. */
    assert_int_equal(kvpool_allocate(kvpool, 3, &prompt, &unfilled, &result), 0);
    assert_int_equal(result.matched, 96);
    history->length = 96;
    attend_all(kvpool, step_one(kvpool, 3, tokens + 96, 4), history, 4, 503);
    assert_int_equal(kvpool_truncate(kvpool, 3, 98), 0);
    history->length = 98;
    attend_all(kvpool, step_one(kvpool, 3, tokens + 11, 5), history, 5, 504);
    free(history);
}

/* Tokens that an allocation took and others in one step, of two sequences: each block is found. */
static void a_step_over_the_end_of_an_allocation_names_all_its_blocks(void **state)
{
    enum { PROMPT = 100, TAKEN = 52 };
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    const struct kvpool_allocate_options part = {.unfilled = true, .has_take = true, .take = TAKEN};
    uint32_t tokens[2][PROMPT];
    struct kvpool_prompt prompts[2];
    struct kvpool_row rows[2];
    uint64_t step;

    for (uint32_t i = 0; i < 2; i++) {
        tokens_make(tokens[i], PROMPT, 31 + i);
        prompts[i] = (struct kvpool_prompt){.tokens = tokens[i], .num_tokens = PROMPT};
        rows[i] = (struct kvpool_row){1 + i, tokens[i], PROMPT};
        assert_int_equal(kvpool_register_model(kvpool, &small_model, &prompts[i].model, NULL), 0);
        assert_int_equal(kvpool_allocate(kvpool, 1 + i, &prompts[i], &part, NULL), 0);
    }
    assert_int_equal(kvpool_step(kvpool, rows, 2, &step), 0);
    const struct tensors tensors = tensors_take(kvpool);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const struct kvpool_attend attend = {.step = step,
                                             .layer = layer,
                                             .dtype = KVPOOL_F32,
                                             .q_offset = tensors.q_offset,
                                             .k_offset = tensors.k_offset,
                                             .v_offset = tensors.v_offset,
                                             .out_offset = tensors.out_offset};
        assert_int_equal(kvpool_attend(kvpool, &attend), 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct kvpool_result result;
        assert_int_equal(kvpool_match(kvpool, &prompts[i], &result), 0);
        assert_int_equal(result.matched, 96);
    }
    kvpool_disconnect(kvpool);
}

static void attends_by_ring_give_what_dense_attention_gives(void **state)
{
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);

    attend_as_dense(kvpool);
    kvpool_disconnect(kvpool);
    assert_true(stat_read(*state, "ring_entries") > 0);
}

static void attends_by_message_give_the_same(void **state)
{
    struct kvpool *kvpool = engine_connect(*state, NULL, KVPOOL_NO_RINGS);

    attend_as_dense(kvpool);
    kvpool_disconnect(kvpool);
    assert_int_equal(stat_read(*state, "ring_entries"), 0);
}

static void a_step_is_abandoned_and_refused_in_its_place(void **state)
{
    uint32_t tokens[64], model;
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    struct history *history = calloc(1, sizeof(*history));
    const struct kvpool_allocate_options unfilled = {.unfilled = true};

    assert_int_equal(kvpool_register_model(kvpool, &small_model, &model, NULL), 0);
    tokens_make(tokens, 64, 22);
    const struct kvpool_prompt prompt = {.model = model, .tokens = tokens, .num_tokens = 20};
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, &unfilled, NULL), 0);
    uint64_t step = step_one(kvpool, 1, tokens, 20);
    const struct kvpool_row row = {1, tokens, 1};
    uint64_t second;
    assert_int_equal(kvpool_step(kvpool, &row, 1, &second), KVPOOL_INVALID);
    assert_int_equal(kvpool_truncate(kvpool, 1, 0), KVPOOL_INVALID);
    assert_int_equal(kvpool_end_step(kvpool, step, false), KVPOOL_INVALID);
    assert_int_equal(kvpool_end_step(kvpool, step, true), 0);
    assert_int_equal(kvpool_end_step(kvpool, step, true), KVPOOL_NOT_FOUND);

    step = step_one(kvpool, 1, tokens, 20);
    struct tensors tensors = tensors_take(kvpool);
    struct kvpool_attend attend = {.step = step,
                                   .dtype = KVPOOL_F32,
                                   .q_offset = tensors.q_offset,
                                   .k_offset = tensors.k_offset,
                                   .v_offset = tensors.v_offset,
                                   .out_offset = tensors.out_offset};
    memset(tensors.q, 0, 20 * Q_HEADS * DIM * sizeof(float));
    memset(tensors.k, 0, 20 * KV_HEADS * DIM * sizeof(float));
    memset(tensors.v, 0, 20 * KV_HEADS * DIM * sizeof(float));
    tensors.k[3] = NAN;
    assert_int_equal(kvpool_attend(kvpool, &attend), KVPOOL_INVALID);
    tensors.k[3] = 0;
    attend.layer = 2;
    assert_int_equal(kvpool_attend(kvpool, &attend), KVPOOL_INVALID);
    attend.layer = 0;
    attend.out_offset = 1 << 20; /* one more than there is */
    assert_int_equal(kvpool_attend(kvpool, &attend), KVPOOL_INVALID);
    attend.out_offset = UINT64_MAX - 64;
    assert_int_not_equal(kvpool_attend(kvpool, &attend), 0);
    attend.out_offset = tensors.out_offset;
    attend.step = step + 1;
    assert_int_equal(kvpool_attend(kvpool, &attend), KVPOOL_NOT_FOUND);
    attend_all(kvpool, step, history, 20, 3);
    assert_int_equal(kvpool_end_step(kvpool, step, false), KVPOOL_NOT_FOUND); /* it committed */
    free(history);
    kvpool_disconnect(kvpool);
}

/* Large enough that worker threads do it. */
static void large_attends_are_split(void **state)
{
    enum { ROWS = 500 };
    static uint32_t tokens[MAX_ROWS];
    struct kvpool *kvpool = engine_connect(*state, NULL, 0);
    struct history *history = calloc(1, sizeof(*history));
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    uint32_t model;

    assert_int_equal(kvpool_register_model(kvpool, &small_model, &model, NULL), 0);
    tokens_make(tokens, MAX_ROWS, 23);
    const struct kvpool_prompt prompt = {.model = model, .tokens = tokens, .num_tokens = ROWS};
    assert_int_equal(kvpool_allocate(kvpool, 1, &prompt, &unfilled, NULL), 0);
    attend_all(kvpool, step_one(kvpool, 1, tokens, ROWS), history, ROWS, 4);
    free(history);
    kvpool_disconnect(kvpool);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        assert_true(stat_read(*state, "attends_queued") > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, daemon_setup, daemon_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(attends_by_ring_give_what_dense_attention_gives),
        TEST(attends_by_message_give_the_same),
        TEST(a_step_over_the_end_of_an_allocation_names_all_its_blocks),
        TEST(a_step_is_abandoned_and_refused_in_its_place),
        TEST(large_attends_are_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
