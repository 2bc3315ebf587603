/*
 * tests/bench/bench_attention.c - attention beside the memory's read bandwidth and OpenBLAS.
 *
 * Decode: K and V rotate through 512 MiB, so they come from memory; the limit reads the same bytes
 * in address order with the same threads. Beside it the same attend with K and V in the cache:
 * what remains is computing. Prefill: FLOP/s beside sgemm of the same two products.
 */
#include "gpu/attend.h"
#include "gpu/host/workers.h"
#include "tests/bench/bench.h"
#include "tests/bench/sgemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    KV_HEADS = 8,
    DIM = 128,
    BLOCK_TOKENS = 16,
    MAX_ROWS = 512,
    MAX_SEQUENCES = 32,
    MAX_BLOCKS = 40000,
    READ_PARTS = 64,
};

static const size_t ARENA_BYTES = 512 << 20;

/*
 * Far over CLAIMS.md, so that noise does not fail a build. Of one thread only: with two, whatever
 * else runs doubles a time.
 */
static const double WORST_DECODE = 5, WORST_PREFILL = 4, WORST_SHARED = 1.2;

static const char *const dtype_names[] = {"f32", "f16", "bf16"};
static const size_t dtype_bytes[] = {4, 2, 2};

static struct bench bench;
static char *arena;
static float *queries, *outputs;

/* A step that is attended again and again, on another layer each time. */
struct step {
    struct gpu_attention *attention;
    struct gpu_step_plan *plan;
    struct gpu_attend_shape shape;
    struct gpu_attend_layer layer;
    struct gpu_attend_run runs[MAX_SEQUENCES][2];
    struct gpu_attend_sequence sequences[MAX_SEQUENCES];
    uint32_t *slots, *own_slots;
    uint32_t num_sequences, attends_per_run;
    double layer_bytes; /* of K and V that one attend must read */
};

/* What a decode or prefill case is. */
struct kind {
    enum gpu_dtype dtype;
    uint32_t context, group, num_threads, num_sequences, num_rows;
    bool is_cached; /* one layer only, so that it stays in the cache */
};

static struct gpu_workers *workers_of(uint32_t num_threads)
{
    static struct gpu_workers *one;
    struct gpu_workers_options options = {.num_threads = 1, .spin_us = 200};

    if (num_threads > 1 && !one && gpu_workers_create(&options, &one) != 0)
        abort();
    return num_threads > 1 ? one : NULL;
}

static void slots_shuffle(uint32_t *slots, uint32_t first, uint32_t num)
{
    uint32_t random = 7;

    for (uint32_t i = 0; i < num; i++) {
        random = random * 1664525 + 1013904223;
        uint32_t j = (uint32_t)((uint64_t)random * (i + 1) >> 32);
        slots[i] = slots[j];
        slots[j] = first + i;
    }
}

/* All sequences share @context tokens; with several, each has a block of its own behind them. */
static void step_tables(struct step *step, const struct kind *kind, size_t stride)
{
    uint32_t num_blocks = (kind->context + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    uint32_t num_own = kind->num_sequences > 1 ? 1 : 0;

    step->slots = calloc(num_blocks, sizeof(*step->slots));
    step->own_slots = calloc(MAX_SEQUENCES, sizeof(*step->own_slots));
    slots_shuffle(step->slots, 1, num_blocks);
    slots_shuffle(step->own_slots, 1 + num_blocks, MAX_SEQUENCES);
    for (uint32_t s = 0; s < kind->num_sequences; s++) {
        step->runs[s][0] = (struct gpu_attend_run){arena, stride, 0, num_blocks, step->slots};
        step->runs[s][1] = (struct gpu_attend_run){arena, stride, num_blocks * BLOCK_TOKENS, 1,
                                                   step->own_slots + s};
        step->sequences[s] = (struct gpu_attend_sequence){
            step->runs[s], 1 + num_own, kind->context - kind->num_rows + num_own * BLOCK_TOKENS,
            kind->num_rows};
    }
}

static void step_init(struct step *step, const struct kind *kind)
{
    struct gpu_attention_options options = {.workers = workers_of(kind->num_threads)};
    struct gpu_step_limits limits = {MAX_SEQUENCES, MAX_ROWS, MAX_BLOCKS, KV_HEADS, 0};
    uint32_t num_blocks = (kind->context + BLOCK_TOKENS - 1) / BLOCK_TOKENS + MAX_SEQUENCES;
    size_t token_bytes = (size_t)KV_HEADS * DIM * 2 * dtype_bytes[kind->dtype];
    size_t num_layers = ARENA_BYTES / (num_blocks * BLOCK_TOKENS * token_bytes);

    *step = (struct step){.num_sequences = kind->num_sequences, .attends_per_run = 1};
    if (num_layers > 64)
        num_layers = 64;
    if (kind->is_cached)
        num_layers = 1;
    step->shape = (struct gpu_attend_shape){.num_layers = (uint32_t)num_layers,
                                            .num_q_heads = KV_HEADS * kind->group,
                                            .num_kv_heads = KV_HEADS,
                                            .k_dim = DIM,
                                            .v_dim = DIM,
                                            .block_tokens = BLOCK_TOKENS,
                                            .kv_dtype = kind->dtype,
                                            .is_causal = true};
    step->layer = (struct gpu_attend_layer){.dtype = GPU_F32, .q = queries, .out = outputs};
    if (kind->dtype == GPU_BF16)
        step->layer.dtype = GPU_BF16; /* as an engine would: it lets the CPU multiply bf16 */
    step->layer_bytes = (double)kind->context * (double)token_bytes;
    step_tables(step, kind, num_layers * BLOCK_TOKENS * token_bytes);
    if (gpu_attention_create(&options, &step->attention) != 0 ||
        gpu_step_plan_create(step->attention, &limits, &step->plan) != 0 ||
        gpu_step_plan_build(step->plan, &step->shape, step->sequences, step->num_sequences) != 0)
        abort();
    while (step->layer_bytes * step->attends_per_run < 8e6 && step->attends_per_run < 256)
        step->attends_per_run *= 2; /* long enough to time */
}

static void step_finish(struct step *step)
{
    gpu_step_plan_destroy(step->plan);
    gpu_attention_destroy(step->attention);
    free(step->slots);
    free(step->own_slots);
}

static void step_run(void *state)
{
    struct step *step = state;

    for (uint32_t i = 0; i < step->attends_per_run; i++) {
        step->layer.layer = (step->layer.layer + 1) % step->shape.num_layers;
        if (gpu_attend_now(step->plan, &step->layer) != 0)
            bench_fail(&bench, "an attend failed");
    }
}

/* The limit: reads bytes of the arena, rotating too, with as many threads. */
struct reading {
    struct gpu_job job; /* first: run() gets it */
    struct gpu_workers *workers;
    size_t bytes, at;
    _Atomic uint64_t sum;
};

static void reading_part(struct gpu_job *job, uint32_t part)
{
    struct reading *reading = (struct reading *)job;
    size_t num = reading->bytes / READ_PARTS / 128;
    const uint64_t *from = (const uint64_t *)(arena + reading->at) + part * num * 16;
    uint64_t sums[16] = {0};

    for (size_t i = 0; i < num; i++)
        for (int lane = 0; lane < 16; lane++)
            sums[lane] += from[i * 16 + lane];
    for (int lane = 1; lane < 16; lane++)
        sums[0] += sums[lane];
    reading->sum += sums[0];
}

static void reading_run(void *state)
{
    struct reading *reading = state;

    reading->at += reading->bytes;
    if (reading->at + reading->bytes > ARENA_BYTES)
        reading->at = 0;
    if (reading->workers) {
        gpu_workers_run(reading->workers, &reading->job);
        return;
    }
    for (uint32_t part = 0; part < READ_PARTS; part++)
        reading_part(&reading->job, part);
}

static struct reading reading_of(size_t bytes, uint32_t num_threads)
{
    return (struct reading){.job = {.run = reading_part, .num_parts = READ_PARTS},
                            .workers = workers_of(num_threads),
                            .bytes = bytes};
}

/* The two products of one KV head's prefill, as plain matrices. */
struct product {
    int m, n, k;
    float *a, *b, *c;
    uint32_t repeats;
};

static void product_run(void *state)
{
    struct product *product = state;

    for (uint32_t i = 0; i < product->repeats; i++) {
        sgemm_run(product->m, product->n, product->k, product->a, product->b, true, product->c);
        sgemm_run(product->m, product->k, product->n, product->c, product->b, false, product->a);
    }
}

static void bench_decode(const struct kind *kind)
{
    struct kind cached_kind = *kind;
    struct step step, cached;
    char name[64];

    cached_kind.is_cached = true;
    cached_kind.context = 128; /* 512 KiB of f16 */
    step_init(&step, kind);
    step_init(&cached, &cached_kind);
    size_t bytes = (size_t)step.layer_bytes * step.attends_per_run;
    struct reading reading = reading_of(bytes, kind->num_threads);
    struct bench_case cases[] = {
        {.run = step_run, .state = &step, .num_items = (double)bytes},
        {.run = reading_run, .state = &reading, .num_items = (double)bytes},
        {.run = step_run,
         .state = &cached,
         .num_items = cached.layer_bytes * cached.attends_per_run},
    };
    bench_run(&bench, cases, 3);

    snprintf(name, sizeof(name), "decode %s ctx %u GQA %u %uT", dtype_names[kind->dtype],
             kind->context, kind->group, kind->num_threads);
    bench_report(&bench, &(struct bench_row){name, 1 / cases[0].median_ns, "GB/s", "read",
                                             1 / cases[1].median_ns,
                                             bench_ratio(&bench, &cases[0], &cases[1]),
                                             kind->num_threads == 1 ? WORST_DECODE : 0});
    /* The roof that is lower bounds it; both together bound it if nothing overlaps. */
    bool is_memory = cases[1].median_ns > cases[2].median_ns;
    bench_report(&bench, &(struct bench_row){"  roof", 1 / cases[0].median_ns, "GB/s",
                                             is_memory ? "memory bounds; computing (cached):"
                                                       : "computing bounds (cached):",
                                             1 / cases[2].median_ns,
                                             bench_ratio(&bench, &cases[0], &cases[2]), 0});
    step_finish(&cached);
    step_finish(&step);
}

/* Beside one sequence alone, and beside as many, one after the other: what not sharing costs. */
static void bench_shared(uint32_t num_threads, enum gpu_dtype dtype, uint32_t group)
{
    static const uint32_t batches[] = {1, 8, 32};
    struct bench_case cases[6];
    struct step steps[6];
    char name[64];

    for (int i = 0; i < 6; i++) {
        struct kind kind = {dtype, 4096, group, num_threads, i < 3 ? batches[i] : 1, 1, false};
        step_init(&steps[i], &kind);
        uint32_t num_steps = steps[i].attends_per_run;
        if (i >= 3)
            steps[i].attends_per_run *= batches[i - 3];
        cases[i] = (struct bench_case){.run = step_run, .state = &steps[i], .num_items = num_steps};
    }
    bench_run(&bench, cases, 6);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "shared 4K %s GQA %u, batch %u, %uT", dtype_names[dtype],
                 group, batches[i], num_threads);
        bench_report(&bench, &(struct bench_row){name, cases[i].median_ns / 1000, "us", "batch 1",
                                                 cases[0].median_ns / 1000,
                                                 bench_ratio(&bench, &cases[i], &cases[0]), 0});
        if (i > 0)
            bench_report(&bench, &(struct bench_row){
                                     "  beside not shared", cases[i].median_ns / 1000, "us",
                                     "as many, one after the other", cases[i + 3].median_ns / 1000,
                                     bench_ratio(&bench, &cases[i], &cases[i + 3]),
                                     num_threads == 1 ? WORST_SHARED : 0});
    }
    for (int i = 0; i < 6; i++)
        step_finish(&steps[i]);
}

/* @rows after a prefix: pairs of a row and a key that it sees, two products each. */
static void bench_prefill(const struct kind *kind)
{
    double pairs = 0;
    struct step step;
    char name[64];

    step_init(&step, kind);
    for (uint32_t row = 0; row < kind->num_rows; row++)
        pairs += kind->context - kind->num_rows + row + 1;
    struct product product = {
        .m = (int)(kind->num_rows * kind->group), .n = (int)kind->context, .k = DIM, .repeats = 1};
    product.a = calloc((size_t)product.m * DIM, sizeof(float));
    product.b = calloc((size_t)product.n * DIM, sizeof(float));
    product.c = calloc((size_t)product.m * (size_t)product.n, sizeof(float));
    struct bench_case cases[] = {
        {.run = step_run,
         .state = &step,
         .num_items = 4.0 * DIM * pairs * KV_HEADS * kind->group * step.attends_per_run},
        {.run = product_run, .state = &product, .num_items = 4.0 * product.m * product.n * DIM},
    };
    sgemm_use_threads((int)kind->num_threads);
    bench_run(&bench, cases, sgemm_is_there() ? 2 : 1);

    snprintf(name, sizeof(name), "prefill %s %u rows to %u, GQA %u %uT", dtype_names[kind->dtype],
             kind->num_rows, kind->context, kind->group, kind->num_threads);
    if (sgemm_is_there())
        bench_report(&bench, &(struct bench_row){name, 1 / cases[0].median_ns, "GFLOP/s", "sgemm",
                                                 1 / cases[1].median_ns,
                                                 bench_ratio(&bench, &cases[0], &cases[1]),
                                                 kind->num_threads == 1 ? WORST_PREFILL : 0});
    else
        bench_report(&bench, &(struct bench_row){name, 1 / cases[0].median_ns, "GFLOP/s",
                                                 "skipped: no OpenBLAS", 0, 0, 0});
    step_finish(&step);
    free(product.a);
    free(product.b);
    free(product.c);
}

static void plan_run(void *state)
{
    struct step *step = state;

    if (gpu_step_plan_build(step->plan, &step->shape, step->sequences, step->num_sequences) != 0)
        bench_fail(&bench, "a plan failed");
}

/* What an attend costs when there is nothing to attend to, next to nothing, and a step's plan. */
static void bench_small(void)
{
    struct kind kind = {GPU_F16, 4096, 4, 1, MAX_SEQUENCES, 1, false};
    struct kind tiny_kind = {GPU_F16, 1, 4, 1, 1, 1, true};
    struct step none, tiny, step;

    step_init(&none, &tiny_kind);
    if (gpu_step_plan_build(none.plan, &none.shape, none.sequences, 0) != 0)
        abort();
    step_init(&tiny, &tiny_kind);
    step_init(&step, &kind);
    struct bench_case cases[] = {
        {.run = step_run, .state = &none, .num_items = none.attends_per_run},
        {.run = step_run, .state = &tiny, .num_items = tiny.attends_per_run},
        {.run = plan_run, .state = &step, .num_items = 1},
    };
    bench_run(&bench, cases, 3);
    static const char *const names[] = {"attend, nothing to do", "attend, one row, one key",
                                        "plan, batch 32 over one 4K prefix"};
    for (int i = 0; i < 3; i++)
        bench_report(&bench, &(struct bench_row){names[i], cases[i].median_ns, "ns", "", 0, 0, 0});
    step_finish(&step);
    step_finish(&tiny);
    step_finish(&none);
}

static void bench_all(bool is_full)
{
    static const uint32_t contexts[] = {1024, 4096, 32768}, groups[] = {1, 4, 8};

    for (uint32_t threads = 1; threads <= 2; threads++) {
        for (int type = 0; type < 3; type++)
            for (int c = 0; c < 3; c++)
                for (int g = 0; g < 3; g++) {
                    struct kind kind = {
                        (enum gpu_dtype)type, contexts[c], groups[g], threads, 1, 1, false};
                    bool is_main =
                        type == GPU_F16 ? g == 1 || (c == 1 && threads == 1) : g == 1 && c == 1;
                    if (is_full || is_main)
                        bench_decode(&kind);
                }
        bench_shared(threads, GPU_F16, 1);
        if (is_full || threads == 1) {
            bench_shared(threads, GPU_F16, 4);
            bench_shared(threads, GPU_BF16, 4);
        }
        for (int type = 0; type < 3; type++) {
            struct kind kind = {(enum gpu_dtype)type, 2048, 4, threads, 1, 256, false};
            if (is_full || threads == 1)
                bench_prefill(&kind);
        }
    }
    bench_small();
}

static void arena_fill(void)
{
    uint32_t random = 1;
    uint16_t *halves = (uint16_t *)arena;

    madvise(arena, ARENA_BYTES, MADV_HUGEPAGE); /* not had: smaller pages, and it shows */
    for (size_t i = 0; i < ARENA_BYTES / 2; i++) {
        random = random * 1664525 + 1013904223;
        halves[i] = (uint16_t)((random >> 16 & 0x83ff) | 0x3800); /* a number in every dtype */
    }
    for (size_t i = 0; i < (size_t)MAX_ROWS * KV_HEADS * 8 * DIM; i++)
        queries[i] = (float)(i % 17) / 16 - 0.5f;
}

int main(int argc, char **argv)
{
    int status = bench_begin(&bench, argc, argv, "attention",
                             "K and V read per second, and FLOP/s (--full: every case)");
    if (status >= 0)
        return status;

    arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    queries = calloc((size_t)MAX_ROWS * KV_HEADS * 8 * DIM, sizeof(float));
    outputs = calloc((size_t)MAX_ROWS * KV_HEADS * 8 * DIM, sizeof(float));
    if (arena == MAP_FAILED || !queries || !outputs)
        return 77;
    arena_fill();
    if (!bench.is_json)
        printf("version: %s\n", gpu_attention_version_name(0));
    bench_all(bench.is_full);
    munmap(arena, ARENA_BYTES);
    free(queries);
    free(outputs);
    return bench_end(&bench);
}
