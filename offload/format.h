/* offload/format.h - internal: what is on the disk, where, and whether it can be believed.
 *
 *     superblock | scratch | granule table | header table | granules
 *
 * All numbers are little-endian. A granule's use has a generation; a header that names another one
 * is of an earlier use and says nothing: that is how all blocks of a granule go at once.
 */
#pragma once

#include "offload/disk.h"

enum {
    FORMAT_VERSION = 1,
    SUPERBLOCK_BYTES = 4096,
    SCRATCH_OFFSET = 4096,
    SCRATCH_BYTES = 4096,
};

struct format_superblock {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t granule_bytes;
    uint32_t num_granules;
    uint32_t max_slots;
    uint64_t file_bytes;
    uint64_t check; /* XXH3 of all before it */
};

struct format_granule {
    uint32_t magic;
    uint32_t is_used;
    uint64_t generation;
    uint32_t granule; /* its own number */
    uint32_t stride_bytes;
    uint32_t owner_bytes;
    uint32_t zero;
    uint8_t owner[DISK_MAX_OWNER_BYTES];
    uint8_t unused[88];
    uint64_t check; /* XXH3 of all before it */
};

struct format_header {
    uint32_t magic;
    uint32_t record_bytes;
    uint64_t generation; /* of the granule's use */
    uint32_t granule, index;
    uint32_t bytes; /* of the block */
    uint32_t zero;
    uint64_t data_hash; /* XXH3 of the block, seeded with that of the record */
    uint8_t record[DISK_MAX_RECORD_BYTES];
    uint8_t unused[16];
    uint64_t check; /* XXH3 of all before it */
};

_Static_assert(sizeof(struct format_granule) == 256, "as laid out");
_Static_assert(sizeof(struct format_header) == 512, "a sector: it is written whole or not");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format's byte order");

/* Where everything is. */
struct format_layout {
    uint64_t granule_bytes;
    uint32_t num_granules, max_slots;
    uint64_t granules_offset, headers_offset, data_offset, file_bytes;
    uint64_t granule_headers_bytes; /* of one granule: whole pages, for O_DIRECT */
};

void format_layout_set(struct format_layout *layout, uint64_t granule_bytes, uint32_t max_slots,
                       uint32_t num_granules);

/* The layout with the most granules that takes at most @max_bytes, with what the file system adds.
 * False: not even one granule fits; then @out_least says what one takes. */
bool format_layout_fit(struct format_layout *layout, uint64_t granule_bytes, uint32_t max_slots,
                       uint64_t max_bytes, uint64_t *out_least);

uint64_t format_granule_offset(const struct format_layout *layout, uint32_t granule);
uint64_t format_header_offset(const struct format_layout *layout, struct disk_slot slot);
uint64_t format_data_offset(const struct format_layout *layout, struct disk_slot slot,
                            uint32_t stride_bytes);

void format_superblock_make(struct format_superblock *superblock,
                            const struct format_layout *layout);

enum format_answer {
    FORMAT_EMPTY = 1, /* zeros */
    FORMAT_FOREIGN,   /* not ours */
    FORMAT_VERSION_UNKNOWN,
    FORMAT_DAMAGED,
    FORMAT_STALE, /* of a header: valid, of an earlier use */
};

/* 0: valid, and the layout is set. Otherwise an answer. */
int format_superblock_read(const struct format_superblock *superblock,
                           struct format_layout *out_layout);

void format_granule_seal(struct format_granule *entry);
int format_granule_verify(const struct format_granule *entry, const struct format_layout *layout,
                          uint32_t granule);

uint64_t format_record_hash(const void *record, size_t bytes); /* never 0 */
void format_header_seal(struct format_header *header);
int format_header_verify(const struct format_header *header, const struct format_granule *use,
                         struct disk_slot slot);
