/* tests/offload/bed.h - a disk in a directory of its own, operations one at a time, patterns. */
#pragma once

#include "offload/owner.h"
#include "tests/support/test.h"

enum {
    BED_GRANULE = 64 << 10,
    BED_STRIDE = 8 << 10, /* 8 slots a granule */
    BED_SLOTS = BED_GRANULE / BED_STRIDE,
    BED_BLOCK = 7000, /* neither whole pages nor whole sectors */
};

struct bed {
    char path[256];
    struct disk_options options; /* what the next bed_open() uses */
    const struct disk_syscalls *system;
    struct disk *disk;
    struct disk_completion last[64]; /* completions that nobody asked for yet */
    size_t num_last;
    char error[DISK_ERROR_BYTES];
};

/* Makes the directory, under @parent or, NULL, where O_DIRECT works. */
void bed_init(struct bed *bed, const char *parent);
void bed_finish(struct bed *bed); /* closes the disk and removes the directory */

/* The same for cmocka: *state is the bed, made and freed too. */
int bed_setup(void **state);
int bed_teardown(void **state);

int bed_open(struct bed *bed); /* as disk_open_with() */
void bed_close(struct bed *bed);

/* Waits for the completion with @cookie and @kind, at most 20 s, and answers its status. */
int bed_wait(struct bed *bed, uint64_t cookie, enum disk_completion_kind kind);

/* Each does the one operation and answers what the call or the completion says. */
int bed_use(struct bed *bed, uint32_t granule, uint32_t stride_bytes);
int bed_free(struct bed *bed, uint32_t granule);
int bed_write(struct bed *bed, struct disk_slot slot, uint64_t seed, uint32_t bytes);
/* -EILSEQ: it ended with 0, and the bytes are not those of @seed; or it failed, and bytes came. */
int bed_read(struct bed *bed, struct disk_slot slot, uint64_t seed, uint32_t bytes);

/* Scans to the end and answers how many blocks were found; @found gets the first @max of them, with
 * records copied to @records. */
size_t bed_scan(struct bed *bed, struct disk_found *found, uint64_t *records, size_t max);

void bed_fill(void *memory, uint64_t seed, uint32_t bytes);
bool bed_is(const void *memory, uint64_t seed, uint32_t bytes);
uint64_t bed_random(uint64_t *state);
uint64_t bed_now_ns(void);

/* Reads, changes and writes back bytes of the file under a closed disk. */
void bed_peek(const struct bed *bed, uint64_t offset, void *bytes, size_t num);
void bed_poke(const struct bed *bed, uint64_t offset, const void *bytes, size_t num);

#define SLOT(g, i) ((struct disk_slot){.granule = (g), .index = (i)})
