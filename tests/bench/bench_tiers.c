/*
 * tests/bench/bench_tiers.c - how fast the daemon moves blocks between its pool and tiers below,
 * beside memcpy and a bare io_uring loop.
 *
 * More prompts than the pool holds are read in turn, so that each is below when its turn comes: the
 * daemon matches it, copies its blocks up, and answers with their slots. A prompt is stored when
 * all of its blocks are below. memcpy goes from anywhere in one piece of memory to anywhere in
 * another, each several times the last-level cache, once for each time that a byte moves.
 */
#include "tests/bench/limit_disk.h"
#include "tests/bench/prompt_bed.h"
#include "tests/bench/tier_bed.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MiB ((uint64_t)1 << 20)

enum {
    ROUNDS = 3, /* at most, with --full 9: a round moves hundreds of megabytes */
    RUN_BYTES = 128 << 20,
    DISK_DEPTH = 32, /* disk-queue-depth */
};

static const uint64_t POOL_BYTES = 256 * MiB, KEPT_BYTES = 768 * MiB;

struct work {
    struct tier_bed *bed;
    const char *tier;
    struct prompt_bed *prompts;
    uint32_t num_kept, num_a_run, next_kept, next_seed, next_copy;
    char *from, *to; /* of memcpy */
    struct limit_disk *limit;
    bool has_failed;
};

static struct bench bench;
static struct tier_bed bed;

/* ---- ours ----------------------------------------------------------------------------------- */

static void run_fetch(void *state)
{
    struct work *work = state;

    prompt_bed_get(work->prompts, 1, work->num_kept, work->next_kept, work->num_a_run);
    work->next_kept = (work->next_kept + work->num_a_run) % work->num_kept;
}

static void run_store(void *state)
{
    struct work *work = state;

    prompt_bed_put(work->prompts, work->next_seed, work->num_a_run);
    work->next_seed += work->num_a_run;
    tier_bed_settle(work->bed, work->tier);
}

/* ---- limits --------------------------------------------------------------------------------- */

static void copy_all(struct work *work, uint32_t num_times)
{
    const uint64_t block_bytes = work->prompts->shape.block_bytes;
    const uint32_t num_blocks = (uint32_t)(RUN_BYTES / block_bytes);
    const uint32_t num_places = (uint32_t)(POOL_BYTES / block_bytes);

    for (uint32_t i = 0; i < num_times * num_blocks; i++) {
        const uint32_t n = work->next_copy++;
        memcpy(work->to + limit_disk_order(n, num_places) * block_bytes,
               work->from + limit_disk_order(n + num_places / 3, num_places) * block_bytes,
               block_bytes);
    }
}

static void run_copy_once(void *state)
{
    copy_all(state, 1);
}

static void run_copy_twice(void *state)
{
    copy_all(state, 2);
}

static void run_disk_bare(void *state)
{
    struct work *work = state;
    const uint32_t num = (uint32_t)(RUN_BYTES / work->prompts->shape.block_bytes);

    work->has_failed |= !limit_disk_run(work->limit, false, num);
}

static void run_disk_bare_write(void *state)
{
    struct work *work = state;
    const uint32_t num = (uint32_t)(RUN_BYTES / work->prompts->shape.block_bytes);

    work->has_failed |= !limit_disk_run(work->limit, true, num);
}

static char *memory_take(void)
{
    char *memory =
        mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        exit(1);
    (void)madvise(memory, POOL_BYTES, MADV_HUGEPAGE); /* as the arenas */
    memset(memory, 1, POOL_BYTES);
    return memory;
}

/* As many bytes as are fetched, beside the daemon's file. */
static void limit_open(struct work *work)
{
    const uint32_t block_bytes = work->prompts->shape.block_bytes;
    const uint32_t num_blocks = (uint32_t)(KEPT_BYTES / block_bytes);
    char path[300];

    (void)snprintf(path, sizeof(path), "%s/limit", work->bed->disk);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool is_fine = fd >= 0 && posix_fallocate(fd, 0, (off_t)KEPT_BYTES) == 0;
    if (fd >= 0)
        (void)close(fd);
    if (is_fine)
        work->limit = limit_disk_create(path, 0, block_bytes, num_blocks, DISK_DEPTH);
    if (!work->limit || !limit_disk_run(work->limit, true, num_blocks)) {
        (void)fprintf(stderr, "bench_tiers: no bare io_uring loop on %s\n", path);
        exit(1);
    }
}

/* ---- rows ----------------------------------------------------------------------------------- */

struct row {
    const char *what, *limit_name;
    void (*run)(void *state), (*run_limit)(void *state);
    bool is_copied;
    double worst_ratio; /* far over CLAIMS.md, so that noise does not fail a build */
};

struct shape {
    const char *name;
    uint32_t num_blocks, block_bytes, num_flying;
};

/* clang-format off */
static const struct row host_rows[] = {
    {"fetch",              "memcpy",          run_fetch, run_copy_once,  false, 6},
    {"fetch, copied out",  "memcpy, twice",   run_fetch, run_copy_twice, true,  6},
    {"copied in, stored",  "memcpy, twice",   run_store, run_copy_twice, true,  8},
};
static const struct row disk_rows[] = {
    {"fetch",              "bare io_uring reads, depth 32",  run_fetch, run_disk_bare,       false, 4},
    {"copied in, stored",  "bare io_uring writes, depth 32", run_store, run_disk_bare_write, true,  5},
};
static const struct shape shapes[] = {
    {"64 KiB x 128", 128, 64 << 10, 8},
    {"2 MiB x 8",      8,  2 << 20, 8},
};
static const struct shape alone = {"64 KiB x 1024, alone", 1024, 64 << 10, 1};
/* clang-format on */

/* Until the tier has been full: memory and extents that nobody has used are several times slower.
 */
static void warm(struct work *work)
{
    while (tier_bed_number(work->bed, "tier_evictions", work->tier) == 0)
        run_store(work);
}

static void measure(struct work *work, const struct shape *shape, const struct row *row)
{
    static struct bench_case cases[2];
    struct bench few = bench;
    char name[64];
    const double num_items = (double)RUN_BYTES / 1e6;

    const size_t most = bench.is_full ? 3 * ROUNDS : ROUNDS;
    if (few.num_rounds > most)
        few.num_rounds = most;
    work->prompts->shape.is_copied = row->is_copied;
    if (row->run == run_store)
        warm(work);
    for (int i = 0; i < 2; i++)
        cases[i] = (struct bench_case){
            .run = i ? row->run_limit : row->run, .state = work, .num_items = num_items};
    bench_run(&few, cases, 2);
    (void)snprintf(name, sizeof(name), "%s: %s, %s", work->tier, shape->name, row->what);
    bench_report(&bench, &(struct bench_row){.name = name,
                                             .ours = 1e9 / cases[0].median_ns,
                                             .unit = "MB/s",
                                             .limit_name = row->limit_name,
                                             .limit = 1e9 / cases[1].median_ns,
                                             .ratio = bench_ratio(&few, &cases[0], &cases[1]),
                                             .worst_ratio = row->worst_ratio});
}

static void fill(struct work *work)
{
    for (uint32_t i = 0; i < work->num_kept; i += work->num_a_run) {
        prompt_bed_put(work->prompts, 1 + i, work->num_a_run);
        tier_bed_settle(work->bed, work->tier);
    }
    work->next_seed = 1 + work->num_kept;
}

static void work_finish(struct work *work)
{
    if (work->prompts->num_wrong > 0 || work->has_failed)
        bench_fail(&bench, "a block was not what was stored, or a verb failed");
    if (work->prompts->num_missed > 0)
        bench_fail(&bench, "a block that was stored was not found");
    if (tier_bed_skipped(work->bed, work->tier) > 0)
        bench_fail(&bench, "a block was to be stored, and was not");
    limit_disk_destroy(work->limit);
    prompt_bed_destroy(work->prompts);
    tier_bed_stop(work->bed);
}

static void measure_tier(const char *tier, const struct shape *shape, const struct row *rows,
                         size_t num_rows)
{
    const bool is_disk = strcmp(tier, "disk") == 0;
    const uint64_t prompt_bytes = (uint64_t)shape->num_blocks * shape->block_bytes;
    const struct prompt_shape prompts = {.num_blocks = shape->num_blocks,
                                         .block_bytes = shape->block_bytes,
                                         .num_flying = shape->num_flying};
    static struct work work;
    char *const from = work.from ? work.from : memory_take();
    char *const to = work.to ? work.to : memory_take();

    work = (struct work){.bed = &bed,
                         .tier = tier,
                         .num_kept = (uint32_t)(KEPT_BYTES / prompt_bytes),
                         .num_a_run = (uint32_t)(RUN_BYTES / prompt_bytes),
                         .from = from,
                         .to = to};
    tier_bed_start(&bed,
                   is_disk ? "pool-bytes: 512MiB\nstore-when: at-once\nwatermark-pages: 0\n"
                           : "pool-bytes: 512MiB\nstore-when: at-once\nwatermark-pages: 0\n"
                             "host-tier-bytes: 1024MiB\n",
                   is_disk ? 1280 * MiB : 0);
    work.prompts = prompt_bed_create(&bed.daemon, &prompts, 0);
    if (is_disk)
        limit_open(&work);
    fill(&work);
    for (size_t i = 0; i < num_rows; i++)
        measure(&work, shape, &rows[i]);
    work_finish(&work);
}

#define NUM(array) (sizeof(array) / sizeof((array)[0]))
int main(int argc, char **argv)
{
    int status = bench_begin(&bench, argc, argv, "tiers",
                             "blocks between the pool and the tiers below it, by the daemon");
    if (status >= 0)
        return status;
    if (!tier_bed_init(&bed, "bench_tiers"))
        return 2;
    for (size_t i = 0; i < NUM(shapes); i++) {
        measure_tier("host", &shapes[i], host_rows, NUM(host_rows));
        measure_tier("disk", &shapes[i], disk_rows, NUM(disk_rows));
    }
    measure_tier("disk", &alone, disk_rows, 1); /* a fetch */
    tier_bed_finish(&bed);
    return bench_end(&bench);
}
