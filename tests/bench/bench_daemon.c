/*
 * tests/bench/bench_daemon.c - the daemon through its socket and rings, beside bare ones.
 *
 * The limits do nothing: a ZeroMQ ROUTER that sends back what it gets (1 KB both ways; the daemon's
 * answers are shorter), a ring that copies an entry for an entry, the core in this process, memcpy.
 * Both sides run in turn, in the same processes, one engine and one daemon.
 */
#include "tests/bench/bench.h"
#include "tests/bench/daemon_bed.h"
#include "tests/bench/limit_ipc.h"
#include "tests/bench/pool_bed.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WINDOW = 64,
    REQUEST_BYTES = 1024,
    REQUEST_TOKENS = 240, /* a Match of so many is a message of 1 KB */
    REQUESTS = 4096,      /* of a round */
    LONG_TOKENS = BED_LONG_BLOCKS * BED_BLOCK_TOKENS,
    LATENCIES = 100, /* of a round */
};

static const uint16_t layers[] = {0, 1};
static const struct kvpool_layer_group group = {.layers = layers, .num_layers = 2};
static const struct kvpool_model model = {.name = "bench",
                                          .weights_revision = "1",
                                          .num_layers = 2,
                                          .groups = &group,
                                          .num_groups = 1,
                                          .num_q_heads = 1,
                                          .num_kv_heads = 1,
                                          .k_head_dim = 16,
                                          .v_head_dim = 16,
                                          .dtype = KVPOOL_F32};

/* An engine with a step that is open: attending its first layer again and again ends nothing. */
struct engine {
    struct kvpool *kvpool;
    uint32_t model;
    uint32_t tokens[REQUEST_TOKENS];
    struct kvpool_prompt prompt;
    struct kvpool_attend attend;
};

struct storm {
    _Atomic bool is_wanted, is_running;
};

static struct daemon_bed daemon_;
static struct limit_echo echo;
static struct limit_ring ring;
static struct storm *storm;
static pid_t storm_pid;
static int storm_fd;
static struct engine by_ring, by_socket;

/* ---- engines -------------------------------------------------------------------------------- */

static void step_open(struct engine *engine)
{
    struct kvpool *kvpool = engine->kvpool;
    const struct kvpool_prompt prompt = {
        .model = engine->model, .tokens = engine->tokens, .num_tokens = 1, .raw = true};
    const struct kvpool_allocate_options options = {.unfilled = true};
    const struct kvpool_row row = {.sequence = 1, .tokens = engine->tokens, .num_tokens = 1};
    struct kvpool_attend *attend = &engine->attend;

    daemon_bed_must(kvpool, kvpool_allocate(kvpool, 1, &prompt, &options, NULL), "allocate");
    *attend = (struct kvpool_attend){.dtype = KVPOOL_F32};
    if (kvpool_staging_take(kvpool, 64, &attend->q_offset) ||
        kvpool_staging_take(kvpool, 64, &attend->k_offset) ||
        kvpool_staging_take(kvpool, 64, &attend->v_offset) ||
        kvpool_staging_take(kvpool, 64, &attend->out_offset))
        exit(1);
    daemon_bed_must(kvpool, kvpool_step(kvpool, &row, 1, &attend->step), "step");
}

static void engine_init(struct engine *engine, uint32_t flags)
{
    engine->kvpool = daemon_bed_connect(&daemon_, flags);
    engine->model = daemon_bed_model(engine->kvpool, &model);
    daemon_bed_tokens(engine->tokens, REQUEST_TOKENS, 1);
    engine->prompt = (struct kvpool_prompt){
        .model = engine->model, .tokens = engine->tokens, .num_tokens = REQUEST_TOKENS};
    step_open(engine);
}

/* ---- requests ------------------------------------------------------------------------------- */

static void requests_run(bool is_one_a_message)
{
    struct kvpool *kvpool = by_socket.kvpool;
    const struct kvpool_request match = {.verb = KVPOOL_MATCH, .prompt = &by_socket.prompt};
    struct kvpool_result result;
    uint64_t ticket;

    for (uint32_t sent = 0, done = 0; done < REQUESTS;) {
        for (; sent < REQUESTS && sent - done < WINDOW; sent++) {
            daemon_bed_must(kvpool, kvpool_submit(kvpool, &match, &ticket), "submit");
            if (is_one_a_message)
                daemon_bed_must(kvpool, kvpool_flush(kvpool), "flush");
        }
        daemon_bed_must(kvpool, kvpool_poll(kvpool, -1, &result), "poll");
        for (done++; kvpool_poll(kvpool, 0, &result) == 0; done++)
            ;
        daemon_bed_must(kvpool, result.status, "match");
    }
}

static void run_requests_single(void *state)
{
    (void)state;
    requests_run(true);
}

static void run_requests_batched(void *state)
{
    (void)state;
    requests_run(false);
}

static void run_echo_window(void *state)
{
    (void)state;
    limit_echo_run(&echo, REQUESTS, REQUEST_BYTES, WINDOW);
}

/* ---- one at a time -------------------------------------------------------------------------- */

static void trip(void)
{
    daemon_bed_must(by_socket.kvpool, kvpool_match(by_socket.kvpool, &by_socket.prompt, NULL),
                    "match");
}

static void trip_echo(void)
{
    limit_echo_run(&echo, 1, REQUEST_BYTES, 1);
}

static void attend_by_socket(void)
{
    daemon_bed_must(by_socket.kvpool, kvpool_attend(by_socket.kvpool, &by_socket.attend), "attend");
}

static void attend_by_ring(void)
{
    daemon_bed_must(by_ring.kvpool, kvpool_attend(by_ring.kvpool, &by_ring.attend), "attend");
}

static void trip_ring(void)
{
    limit_ring_run(&ring, 1);
}

/* clang-format off */
static const struct latency {
    const char *name, *limit_name;
    void (*run)(void), (*run_limit)(void);
    uint32_t num_trips;
    double worst_ratio; /* far over CLAIMS.md, so that noise does not fail a build */
} latencies[] = {
    {"round trip of 1 KB, one outstanding", "bare echo of 1 KB", trip,             trip_echo, 200,  4},
    {"empty attend, socket",                "bare echo of 1 KB", attend_by_socket, trip_echo, 200,  4},
    {"empty attend, ring",                  "bare ring",         attend_by_ring,   trip_ring, 2000, 0},
};
/* clang-format on */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(double *values, size_t num_values, double at)
{
    qsort(values, num_values, sizeof(*values), compare_doubles);
    return values[(size_t)((double)num_values * at)];
}

static double *values_make(const struct bench *bench, uint32_t num_a_round)
{
    double *values = calloc(bench->num_rounds * num_a_round, sizeof(*values));

    if (!values)
        exit(1);
    return values;
}

static void trips_take(void (*run)(void), uint32_t count, double *out_us)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t start = bench_now_ns();
        run();
        out_us[i] = (double)(bench_now_ns() - start) / 1e3;
    }
}

/*
 * The median of single trips, not of rounds: where other work shares the CPUs, one trip in a
 * hundred waits for milliseconds, and would be all of a round's sum. What spins runs alone.
 */
static void measure_latency(struct bench *bench, const struct latency *latency)
{
    const uint32_t num = latency->num_trips;
    double *ours = values_make(bench, num), *limit = values_make(bench, num);
    const size_t num_all = bench->num_rounds * num;

    for (size_t round = 0; round < bench->num_rounds; round++) {
        trips_take(latency->run, num, &ours[round * num]);
        if (latency->run_limit == trip_ring)
            limit_ring_wake(&ring, true);
        trips_take(latency->run_limit, num, &limit[round * num]);
        if (latency->run_limit == trip_ring)
            limit_ring_wake(&ring, false);
    }
    struct bench_row row = {.name = latency->name,
                            .ours = quantile(ours, num_all, 0.5),
                            .unit = "us",
                            .limit_name = latency->limit_name,
                            .limit = quantile(limit, num_all, 0.5),
                            .worst_ratio = latency->worst_ratio};
    row.ratio = row.ours / row.limit;
    bench_report(bench, &row);
    free(ours);
    free(limit);
}

/* ---- a long prompt -------------------------------------------------------------------------- */

static uint32_t long_tokens[LONG_TOKENS], slots[BED_LONG_BLOCKS], generations[BED_LONG_BLOCKS];
static uint32_t copied_tokens[LONG_TOKENS];
static struct pool_place places[BED_LONG_BLOCKS];
static struct pool_prompt bare_prompt;

static int long_allocate(uint64_t sequence, struct kvpool_table *out_table, uint64_t *out_matched)
{
    const struct kvpool_prompt prompt = {
        .model = by_socket.model, .tokens = long_tokens, .num_tokens = LONG_TOKENS, .raw = true};
    struct kvpool_result result;
    const struct kvpool_allocate_options options = {.tables = out_table, .num_tables = 1};

    *out_table =
        (struct kvpool_table){.slots = slots, .generations = generations, .max = BED_LONG_BLOCKS};
    int answer = kvpool_allocate(by_socket.kvpool, sequence, &prompt, &options, &result);
    *out_matched = result.matched;
    return answer;
}

static void run_long(void *state)
{
    struct kvpool_table table;
    uint64_t matched;

    (void)state;
    daemon_bed_must(by_socket.kvpool, long_allocate(10, &table, &matched), "allocate");
    if (matched != LONG_TOKENS || table.num != BED_LONG_BLOCKS)
        daemon_bed_must(NULL, KVPOOL_MISS, "a warm prompt of 131,072 tokens");
    daemon_bed_must(by_socket.kvpool, kvpool_release(by_socket.kvpool, 10), "release");
}

/* The same tokens named, found, held, their table copied, let go of: in this process. */
static void run_long_bare(void *state)
{
    struct bed *bed = state;
    uint32_t count;

    memcpy(copied_tokens, long_tokens, sizeof(copied_tokens));
    bed_name(bed, BED_LONG_BLOCKS);
    struct pool_name name = bed_alloc(bed, &bare_prompt);
    if (pool_table(bed->pool, name, 0, places, BED_LONG_BLOCKS, &count))
        bed->num_refused++;
    for (uint32_t i = 0; i < BED_LONG_BLOCKS; i++) {
        slots[i] = places[i].slot;
        generations[i] = places[i].generation;
    }
    bed_release(bed, name);
}

static void measure_long(struct bench *bench)
{
    static struct bench_case cases[2];
    struct bed *bed = bed_create(&(struct bed_shape){.num_blocks = 40000, .num_spare = 64});
    struct kvpool_table table;
    uint64_t matched;

    bare_prompt = bed_take(bed, 0);
    bare_prompt.is_raw = true;
    daemon_bed_tokens(long_tokens, LONG_TOKENS, 77);
    daemon_bed_must(by_socket.kvpool, long_allocate(9, &table, &matched), "allocate");
    daemon_bed_must(by_socket.kvpool, kvpool_publish(by_socket.kvpool, 9), "publish");
    daemon_bed_must(by_socket.kvpool, kvpool_release(by_socket.kvpool, 9), "release");
    cases[0] = (struct bench_case){.run = run_long, .num_items = 1};
    cases[1] = (struct bench_case){.run = run_long_bare, .state = bed, .num_items = 1};
    bench_run(bench, cases, 2);
    if (bed->num_refused > 0)
        bench_fail(bench, "the core in this process refused");
    bench_report(bench, &(struct bench_row){.name = "warm prompt of 131,072 tokens, socket",
                                            .ours = cases[0].median_ns / 1e3,
                                            .unit = "us",
                                            .limit_name = "name, hold, table, let go in process",
                                            .limit = cases[1].median_ns / 1e3,
                                            .ratio = bench_ratio(bench, &cases[0], &cases[1]),
                                            .worst_ratio = 4});
    bed_destroy(bed);
}

/* ---- a storm -------------------------------------------------------------------------------- */

/* As many requests as the credits allow, all the time, while that is wanted. */
static void storm_serve(void)
{
    struct kvpool *kvpool = daemon_bed_connect(&daemon_, 0);
    uint32_t tokens[REQUEST_TOKENS];
    const struct kvpool_prompt prompt = {
        .model = daemon_bed_model(kvpool, &model), .tokens = tokens, .num_tokens = REQUEST_TOKENS};
    const struct kvpool_request match = {.verb = KVPOOL_MATCH, .prompt = &prompt};
    struct kvpool_result result;
    uint64_t ticket;

    daemon_bed_tokens(tokens, REQUEST_TOKENS, 2);
    for (;;) { /* until it is killed */
        const bool is_wanted = atomic_load(&storm->is_wanted);
        while (is_wanted && kvpool_submit(kvpool, &match, &ticket) == 0)
            ;
        atomic_store(&storm->is_running, is_wanted);
        uint64_t count;
        if (kvpool_poll(kvpool, 100, &result) == -ENOENT)
            (void)!read(storm_fd, &count, sizeof(count)); /* asleep, it disturbs nobody */
        while (kvpool_poll(kvpool, 0, &result) == 0)
            ;
    }
}

static void storm_set(bool is_wanted)
{
    const uint64_t one = 1;

    atomic_store(&storm->is_wanted, is_wanted);
    if (is_wanted)
        (void)!write(storm_fd, &one, sizeof(one));
    while (atomic_load(&storm->is_running) != is_wanted)
        (void)usleep(100);
}

static void measure_storm(struct bench *bench)
{
    double *idle = values_make(bench, LATENCIES), *storming = values_make(bench, LATENCIES);
    const size_t num = bench->num_rounds * LATENCIES;

    for (size_t round = 0; round < bench->num_rounds; round++) {
        trips_take(trip, LATENCIES, &idle[round * LATENCIES]);
        storm_set(true);
        trips_take(trip, LATENCIES, &storming[round * LATENCIES]);
        storm_set(false);
    }
    struct bench_row row = {.name = "p99 of one session while one storms",
                            .ours = quantile(storming, num, 0.99),
                            .unit = "us",
                            .limit_name = "its p99 when nobody does",
                            .limit = quantile(idle, num, 0.99)};
    row.ratio = row.ours / row.limit;
    bench_report(bench, &row);
    row.name = "p50 of one session while one storms";
    row.limit_name = "its p50 when nobody does";
    row.ours = quantile(storming, num, 0.5);
    row.limit = quantile(idle, num, 0.5);
    row.ratio = row.ours / row.limit;
    bench_report(bench, &row);
    free(idle);
    free(storming);
}

/* ---- all ------------------------------------------------------------------------------------ */

/* clang-format off */
static const struct pair {
    const char *name, *limit_name;
    void (*run)(void *state), (*run_limit)(void *state);
    double num_items;
    double worst_ratio; /* far over CLAIMS.md, so that noise does not fail a build */
} pairs[] = {
    {"request of 1 KB, 64 outstanding, batched", "bare echo of 1 KB", run_requests_batched, run_echo_window, REQUESTS, 4},
    {"the same, each a message of its own",      "bare echo of 1 KB", run_requests_single,  run_echo_window, REQUESTS, 6},
};
/* clang-format on */

static void measure_pair(struct bench *bench, const struct pair *pair)
{
    static struct bench_case cases[2];

    cases[0] = (struct bench_case){.run = pair->run, .num_items = pair->num_items};
    cases[1] = (struct bench_case){.run = pair->run_limit, .num_items = pair->num_items};
    bench_run(bench, cases, 2);
    bench_report(bench, &(struct bench_row){.name = pair->name,
                                            .ours = cases[0].median_ns / 1e3,
                                            .unit = "us",
                                            .limit_name = pair->limit_name,
                                            .limit = cases[1].median_ns / 1e3,
                                            .ratio = bench_ratio(bench, &cases[0], &cases[1]),
                                            .worst_ratio = pair->worst_ratio});
}

static void storm_start(void)
{
    storm = mmap(NULL, sizeof(*storm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    storm_fd = eventfd(0, EFD_CLOEXEC);
    if (storm == MAP_FAILED || storm_fd < 0)
        exit(1);
    storm_pid = fork();
    if (storm_pid < 0)
        exit(1);
    if (storm_pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        storm_serve();
    }
}

static void finish(void)
{
    kvpool_disconnect(by_ring.kvpool);
    kvpool_disconnect(by_socket.kvpool);
    by_ring.kvpool = by_socket.kvpool = NULL;
    if (storm_pid > 0) {
        (void)kill(storm_pid, SIGKILL);
        (void)waitpid(storm_pid, NULL, 0);
    }
    limit_ring_stop(&ring);
    daemon_bed_stop(&daemon_);
}

int main(int argc, char **argv)
{
    const char *program = getenv("KVPOOLD");
    struct bench bench;
    int status = bench_begin(&bench, argc, argv, "daemon", "requests, attends, blocks");
    if (status >= 0)
        return status;

    if (!program) {
        fprintf(stderr, "bench_daemon: set KVPOOLD to the kvpoold to measure\n");
        return 2;
    }
    (void)fflush(stdout);
    daemon_bed_directory(&daemon_);
    if (limit_echo_start(&echo, daemon_.dir) || limit_ring_start(&ring))
        return 1;
    daemon_bed_start(&daemon_, program, "pool-bytes: 256MiB\npage-bytes: 2MiB\n");
    storm_start();
    if (limit_echo_connect(&echo))
        return 1;
    engine_init(&by_ring, 0);
    engine_init(&by_socket, KVPOOL_NO_RINGS);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        measure_pair(&bench, &pairs[i]);
    for (size_t i = 0; i < sizeof(latencies) / sizeof(latencies[0]); i++)
        measure_latency(&bench, &latencies[i]);
    measure_long(&bench);
    measure_storm(&bench);
    finish();
    bench_blocks(&bench, &daemon_, program, &echo);
    limit_echo_stop(&echo);
    daemon_bed_finish(&daemon_);
    return bench_end(&bench);
}
