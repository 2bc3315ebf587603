/*
 * daemon/records.h - what is in every slot of an arena, written down where it outlives the process.
 *
 * One table an arena, in a memfd that is never exported: a header that says whose arena it is, and
 * a record a slot. After a crash the index of the pool is made of them.
 *
 *  R1  A slot has a record only while it holds the published block that the record names, filled:
 *      cleared before the slot is given out (POOL_EFFECT_GONE), written after it was published
 *      (POOL_EFFECT_PRESENT).
 *  R2  Killed between any two stores, a table has a record whole or not at all: the word that makes
 *      it one is taken away first, and stored last. It is also a checksum of the record, its slot
 *      and its arena, so that what was not written here is not taken for one.
 *
 * The packed form of a record is what lies beside a block on a disk.
 */
#pragma once

#include "gpu/gpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RECORD_ID_BYTES = 32,
    RECORD_MAX_FORM = 32,
    RECORD_MAX_PACKED = 304 /* bytes: fits DISK_MAX_RECORD_BYTES */
};

/* Whose blocks, and of which form: the same for all slots of an arena. */
struct record_place {
    uint8_t domain[RECORD_ID_BYTES]; /* made of the domain's secret: of a domain that has another
                                        one nothing is found */
    uint8_t model[RECORD_ID_BYTES];  /* fingerprint */
    uint32_t group, format;
};

/* Of one block. Unused bytes are 0. */
struct record {
    uint8_t key[RECORD_ID_BYTES];
    uint8_t parent[RECORD_ID_BYTES]; /* key of the block before it, if @has_parent */
    uint64_t extra;                  /* hash of what its key has beside tokens; 0: nothing */
    uint64_t epoch;                  /* of its domain and model: stale after a Clear */
    uint32_t generation;             /* of its slot */
    uint32_t num_tokens;
    uint32_t form[RECORD_MAX_FORM]; /* what is compared of its tokens: struct pool_effect */
    uint32_t num_form;
    bool has_parent, is_storable;
    bool is_generated; /* stored only if it is hit as a prompt: struct pool_restored */
};

/* --- packed --- */

/* Answers its bytes, at most RECORD_MAX_PACKED. */
size_t record_pack(const struct record_place *place, const struct record *record,
                   uint8_t out[RECORD_MAX_PACKED]);

/* -EPROTONOSUPPORT: of another version. -EBADMSG: no record, or not as record_pack() makes it. */
int record_unpack(const void *packed, size_t num_bytes, struct record_place *out_place,
                  struct record *out_record);

/* --- tables --- */

struct records;

/* With the files, all that is needed to adopt the arena: gpu_arena_adopt(). */
struct records_options {
    struct record_place place;
    uint32_t tier, page_bytes;
    uint64_t budget_bytes; /* of the device */
    struct gpu_arena_options arena;
    uint32_t max_form; /* words that any block of it has, up to RECORD_MAX_FORM */
};

/* -EINVAL: more words, or slots, than there can be. -ENOMEM, -EMFILE and the like: the system's. */
int records_create(const struct records_options *options, struct records **out_records);

/*
 * The table of an earlier process. Takes @fd, on success only. -EPROTONOSUPPORT: of another version
 * of kvpoold. -EBADMSG: it is no table.
 */
int records_adopt(int fd, struct records **out_records);
void records_destroy(struct records *records); /* closes its descriptor. Takes NULL */

/* For the keeper, to nobody else. The table's own: not to be closed. */
int records_fd(const struct records *records);
const struct records_options *records_describe(const struct records *records);
uint32_t records_num_slots(const struct records *records); /* slots are 1 .. this */

/* Before the arena's first export for writing: in its next life it is copied, not adopted. */
void records_set_writable(struct records *records);
bool records_is_writable(const struct records *records);

/* R1. Hot path: no allocation, no lock, no system call. */
void records_clear(struct records *records, uint32_t slot);
void records_write(struct records *records, uint32_t slot, const struct record *record);

/* -ENOENT: the slot has none. -EBADMSG: what it has is not valid. */
int records_read(const struct records *records, uint32_t slot, struct record *out_record);

/* Begins zeroed. */
struct records_walk {
    uint32_t slot; /* that was found */
    uint32_t end;  /* up to it the table has memory */
};

/* On to the next slot that has a record, valid or not; false: there is no more. What was never
 * written is skipped without touching it. */
bool records_next(const struct records *records, struct records_walk *walk);

/*
 * Sets a bit in @granules (64-bit words, lowest first, one bit for each granule) for each granule
 * with a valid record, and answers how many these are. Others are cleared.
 */
uint32_t records_granules(const struct records *records, uint64_t *granules);
