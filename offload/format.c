/* offload/format.c - what is on the disk, where, and whether it can be believed. */
#include "offload/format.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char MAGIC[8] = "kvpdisk";
static const uint32_t GRANULE_MAGIC = 0x6772616e, HEADER_MAGIC = 0x68656164;
static const uint64_t FIXED_SLACK_BYTES = 16 << 10; /* lock file, first extent blocks */
static const uint64_t SLOT_SLACK_BYTES = 48; /* two half-full extent records of ext4, at worst */

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + DISK_ALIGN - 1) / DISK_ALIGN * DISK_ALIGN;
}

void format_layout_set(struct format_layout *layout, uint64_t granule_bytes, uint32_t max_slots,
                       uint32_t num_granules)
{
    *layout = (struct format_layout){
        .granule_bytes = granule_bytes,
        .num_granules = num_granules,
        .max_slots = max_slots,
        .granules_offset = SCRATCH_OFFSET + SCRATCH_BYTES,
        .granule_headers_bytes = round_up((uint64_t)max_slots * sizeof(struct format_header)),
    };
    layout->headers_offset =
        layout->granules_offset + round_up(num_granules * sizeof(struct format_granule));
    layout->data_offset = layout->headers_offset + num_granules * layout->granule_headers_bytes;
    layout->file_bytes = layout->data_offset + num_granules * granule_bytes;
}

static uint64_t physical_bytes(const struct format_layout *layout)
{
    return layout->file_bytes + FIXED_SLACK_BYTES +
           (uint64_t)layout->num_granules * layout->max_slots * SLOT_SLACK_BYTES;
}

bool format_layout_fit(struct format_layout *layout, uint64_t granule_bytes, uint32_t max_slots,
                       uint64_t max_bytes, uint64_t *out_least)
{
    format_layout_set(layout, granule_bytes, max_slots, 1);
    *out_least = physical_bytes(layout);
    if (*out_least > max_bytes)
        return false;

    uint64_t each = granule_bytes + layout->granule_headers_bytes + sizeof(struct format_granule) +
                    max_slots * SLOT_SLACK_BYTES;
    uint64_t num = 2 + (max_bytes - *out_least) / each; /* the table of granules grows by pages */
    num = num < UINT32_MAX ? num : UINT32_MAX - 1;
    do
        format_layout_set(layout, granule_bytes, max_slots, (uint32_t)num);
    while (physical_bytes(layout) > max_bytes && --num > 0);
    return true;
}

uint64_t format_granule_offset(const struct format_layout *layout, uint32_t granule)
{
    return layout->granules_offset + (uint64_t)granule * sizeof(struct format_granule);
}

uint64_t format_header_offset(const struct format_layout *layout, struct disk_slot slot)
{
    return layout->headers_offset + slot.granule * layout->granule_headers_bytes +
           (uint64_t)slot.index * sizeof(struct format_header);
}

uint64_t format_data_offset(const struct format_layout *layout, struct disk_slot slot,
                            uint32_t stride_bytes)
{
    return layout->data_offset + slot.granule * layout->granule_bytes +
           (uint64_t)slot.index * stride_bytes;
}

static uint64_t check_of(const void *what, size_t bytes_before)
{
    return XXH3_64bits(what, bytes_before);
}

void format_superblock_make(struct format_superblock *superblock,
                            const struct format_layout *layout)
{
    *superblock = (struct format_superblock){
        .version = FORMAT_VERSION,
        .header_bytes = sizeof(struct format_header),
        .granule_bytes = layout->granule_bytes,
        .num_granules = layout->num_granules,
        .max_slots = layout->max_slots,
        .file_bytes = layout->file_bytes,
    };
    memcpy(superblock->magic, MAGIC, sizeof(MAGIC));
    superblock->check = check_of(superblock, offsetof(struct format_superblock, check));
}

static bool is_zero(const void *what, size_t bytes)
{
    const uint8_t *byte = what;

    return byte[0] == 0 && memcmp(byte, byte + 1, bytes - 1) == 0;
}

int format_superblock_read(const struct format_superblock *superblock,
                           struct format_layout *out_layout)
{
    struct format_layout layout;

    if (is_zero(superblock, sizeof(*superblock)))
        return FORMAT_EMPTY;
    if (memcmp(superblock->magic, MAGIC, sizeof(MAGIC)) != 0)
        return FORMAT_FOREIGN;
    if (superblock->version != FORMAT_VERSION)
        return FORMAT_VERSION_UNKNOWN;
    if (superblock->check != check_of(superblock, offsetof(struct format_superblock, check)) ||
        superblock->header_bytes != sizeof(struct format_header))
        return FORMAT_DAMAGED;
    format_layout_set(&layout, superblock->granule_bytes, superblock->max_slots,
                      superblock->num_granules);
    if (layout.file_bytes != superblock->file_bytes)
        return FORMAT_DAMAGED;
    *out_layout = layout;
    return 0;
}

void format_granule_seal(struct format_granule *entry)
{
    entry->magic = GRANULE_MAGIC;
    entry->check = check_of(entry, offsetof(struct format_granule, check));
}

int format_granule_verify(const struct format_granule *entry, const struct format_layout *layout,
                          uint32_t granule)
{
    if (is_zero(entry, sizeof(*entry)))
        return FORMAT_EMPTY;
    if (entry->magic != GRANULE_MAGIC || entry->granule != granule ||
        entry->check != check_of(entry, offsetof(struct format_granule, check)))
        return FORMAT_DAMAGED;
    if (!entry->is_used)
        return FORMAT_EMPTY;
    if (entry->stride_bytes == 0 || entry->stride_bytes % DISK_ALIGN != 0 ||
        layout->granule_bytes / entry->stride_bytes == 0 ||
        layout->granule_bytes / entry->stride_bytes > layout->max_slots ||
        entry->owner_bytes > DISK_MAX_OWNER_BYTES)
        return FORMAT_DAMAGED;
    return 0;
}

uint64_t format_record_hash(const void *record, size_t bytes)
{
    uint64_t hash = XXH3_64bits(record, bytes);
    return hash ? hash : 1;
}

void format_header_seal(struct format_header *header)
{
    header->magic = HEADER_MAGIC;
    header->check = check_of(header, offsetof(struct format_header, check));
}

int format_header_verify(const struct format_header *header, const struct format_granule *use,
                         struct disk_slot slot)
{
    if (header->magic == 0 && is_zero(header, offsetof(struct format_header, record)))
        return FORMAT_EMPTY;
    if (header->magic != HEADER_MAGIC ||
        header->check != check_of(header, offsetof(struct format_header, check)) ||
        header->granule != slot.granule || header->index != slot.index ||
        header->record_bytes > DISK_MAX_RECORD_BYTES)
        return FORMAT_DAMAGED;
    if (header->generation != use->generation)
        return FORMAT_STALE;
    return header->bytes > 0 && header->bytes <= use->stride_bytes ? 0 : FORMAT_DAMAGED;
}
