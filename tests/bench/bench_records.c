/*
 * tests/bench/bench_records.c - what it costs to write down what a slot has, on the path of a
 * publish, beside a copy of as many bytes to the same places; and to find it all again.
 */
#include "daemon/records.h"
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_SLOTS = 1 << 17, NUM_WRITES = 1 << 16, FORM = 16, ENTRY_BYTES = 192 };

static struct bench bench;
static struct records *records;
static struct record record;
static uint8_t *memory;
static uint64_t granules[NUM_SLOTS / 64];

static uint32_t nth_slot(uint32_t i)
{
    return (i * 40503u) % NUM_SLOTS + 1; /* all over the table: caches do not help */
}

static void run_writes(void *state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_WRITES; i++) {
        record.generation = i;
        record.form[0] = i;
        records_write(records, nth_slot(i), &record);
    }
}

static void run_copies(void *state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_WRITES; i++)
        memcpy(memory + (uint64_t)(nth_slot(i) - 1) * ENTRY_BYTES, &record, ENTRY_BYTES);
}

static void run_clears(void *state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_WRITES; i++)
        records_clear(records, nth_slot(i));
}

static void run_walk(void *state)
{
    (void)state;
    if (records_granules(records, granules) != NUM_SLOTS)
        bench_fail(&bench, "a record was not found again");
}

int main(int argc, char **argv)
{
    struct records_options options = {
        .page_bytes = 2 << 20,
        .budget_bytes = UINT64_C(1) << 40,
        .arena = {.granule = {.pages = 1, .slots = 1}, .max_granules = NUM_SLOTS},
        .max_form = FORM};
    struct bench_case cases[] = {{.run = run_writes, .num_items = NUM_WRITES},
                                 {.run = run_copies, .num_items = NUM_WRITES},
                                 {.run = run_clears, .num_items = NUM_WRITES}};
    struct bench_case walk = {.run = run_walk, .num_items = NUM_SLOTS};
    int status =
        bench_begin(&bench, argc, argv, "records",
                    "records of 131,072 slots (16 token ids each) written, cleared, found again");

    if (status >= 0)
        return status;
    memory = calloc(NUM_SLOTS, ENTRY_BYTES);
    record = (struct record){.num_tokens = FORM, .num_form = FORM, .has_parent = true};
    if (!memory || records_create(&options, &records) != 0)
        return 1;
    bench_run(&bench, cases, 3);
    struct bench_row row = {.name = "write",
                            .ours = cases[0].median_ns,
                            .unit = "ns",
                            .limit_name = "memcpy of 192 bytes",
                            .limit = cases[1].median_ns,
                            .ratio = bench_ratio(&bench, &cases[0], &cases[1])};
    bench_report(&bench, &row);
    bench_report(&bench, &(struct bench_row){.name = "clear",
                                             .ours = cases[2].median_ns,
                                             .unit = "ns",
                                             .limit_name = "memcpy of 192 bytes",
                                             .limit = cases[1].median_ns,
                                             .ratio = bench_ratio(&bench, &cases[2], &cases[1])});
    for (uint32_t slot = 1; slot <= NUM_SLOTS; slot++)
        records_write(records, slot, &record);
    bench_run(&bench, &walk, 1);
    bench_report(&bench, &(struct bench_row){.name = "found again",
                                             .ours = walk.median_ns,
                                             .unit = "ns",
                                             .limit_name = "",
                                             .limit = 0});
    records_destroy(records);
    free(memory);
    return bench_end(&bench);
}
