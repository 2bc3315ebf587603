/* daemon/records.c - tables of records: a memfd, mapped whole, a record in 1 to 4 cache lines. */
#include "daemon/records.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORDS_VERSION = 1, HEADER_BYTES = 4096, CACHE_LINE = 64 };

#define RECORDS_MAGIC UINT64_C(0x6b767265636f7264) /* "kvrecord" */
#define RECORDS_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Of this machine alone, so in its byte order. */
struct header {
    uint64_t magic;
    uint32_t version, entry_bytes;
    struct records_options options;
    uint64_t check; /* of all above */
    _Atomic uint32_t is_writable;
};

/* All but @check, up to the last word of @form that is used, is what it is the checksum of. */
struct entry {
    _Atomic uint64_t check; /* 0: no record. R2 */
    uint8_t key[RECORD_ID_BYTES];
    uint8_t parent[RECORD_ID_BYTES];
    uint64_t extra, epoch;
    uint32_t generation, num_tokens;
    uint16_t num_form;
    uint8_t has_parent, is_storable;
    uint32_t is_generated;
    uint32_t form[RECORD_MAX_FORM]; /* options.max_form of them */
};

struct records {
    int fd;
    struct header *header;
    uint8_t *entries;
    uint64_t bytes, seed;
    uint32_t num_slots, entry_bytes, num_granules;
};

/* ---- checksums ------------------------------------------------------------------------------ */

/* No cryptography: nobody but us can write here. It tells a whole record from part of one, and any
 * one word from another. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15); /* one-to-one, as is the next */
    return hash ^ hash >> 32;
}

/* Of whole words, and what is left of a last one. */
static uint64_t mix_bytes(uint64_t hash, const void *bytes, size_t num_bytes)
{
    const uint8_t *at = bytes;
    uint64_t word;

    for (; num_bytes >= sizeof(word); at += sizeof(word), num_bytes -= sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, at, num_bytes);
    return mix(hash, word);
}

static uint64_t entry_check(const struct records *records, uint32_t slot, const struct entry *entry)
{
    size_t first = offsetof(struct entry, key);
    size_t end = offsetof(struct entry, form) + entry->num_form * sizeof(entry->form[0]);
    uint64_t hash = mix(records->seed, slot);

    return mix_bytes(hash, (const uint8_t *)entry + first, end - first) | 1;
}

/* ---- life ----------------------------------------------------------------------------------- */

static uint32_t entry_size(uint32_t max_form)
{
    uint32_t bytes = (uint32_t)(offsetof(struct entry, form) + max_form * sizeof(uint32_t));

    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static bool options_fit(const struct records_options *options)
{
    const struct gpu_arena_options *arena = &options->arena;

    return options->max_form <= RECORD_MAX_FORM && arena->granule.slots > 0 &&
           arena->max_granules > 0 &&
           (uint64_t)arena->max_granules * arena->granule.slots < UINT32_MAX;
}

static void records_lay_out(struct records *records, const struct records_options *options)
{
    records->num_granules = options->arena.max_granules;
    records->num_slots = records->num_granules * options->arena.granule.slots;
    records->entry_bytes = entry_size(options->max_form);
    records->bytes = HEADER_BYTES + (uint64_t)records->num_slots * records->entry_bytes;
}

static int records_map(struct records *records)
{
    void *memory = mmap(NULL, records->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                        records->fd, 0);

    if (memory == MAP_FAILED)
        return -errno;
    (void)madvise(memory, records->bytes, MADV_DONTDUMP); /* tenants' tokens */
    records->header = memory;
    records->entries = (uint8_t *)memory + HEADER_BYTES;
    return 0;
}

static uint64_t header_check(const struct header *header)
{
    return mix_bytes(RECORDS_MAGIC, header, offsetof(struct header, check)) | 1;
}

int records_create(const struct records_options *options, struct records **out_records)
{
    static_assert(sizeof(struct header) <= HEADER_BYTES, "the header has one page");
    if (!options_fit(options))
        return -EINVAL;
    struct records *records = calloc(1, sizeof(*records));
    if (!records)
        return -ENOMEM;

    int err;
    records_lay_out(records, options);
    records->fd = memfd_create("kvpoold-records", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (records->fd < 0 || fchmod(records->fd, 0600) < 0 ||
        ftruncate(records->fd, (off_t)records->bytes) < 0 ||
        fcntl(records->fd, F_ADD_SEALS, RECORDS_SEALS) < 0) {
        err = -errno;
        goto fail;
    }
    err = records_map(records);
    if (err)
        goto fail;
    records->header->magic = RECORDS_MAGIC;
    records->header->version = RECORDS_VERSION;
    records->header->entry_bytes = records->entry_bytes;
    records->header->options = *options;
    records->header->check = header_check(records->header);
    records->seed = records->header->check;
    *out_records = records;
    return 0;

fail:
    records_destroy(records);
    return err;
}

/* What is read here may be anything: it is only believed as far as it was checked. */
static int header_read(int fd, uint64_t file_bytes, struct header *out_header)
{
    struct header header = {0};
    ssize_t num_bytes = pread(fd, &header, sizeof(header), 0);

    if (num_bytes < 0)
        return -errno;
    if (num_bytes != (ssize_t)sizeof(header) || header.magic != RECORDS_MAGIC)
        return -EBADMSG;
    if (header.version != RECORDS_VERSION)
        return -EPROTONOSUPPORT;
    if (header.check != header_check(&header) || !options_fit(&header.options))
        return -EBADMSG;
    struct records expected = {0};
    records_lay_out(&expected, &header.options);
    if (header.entry_bytes != expected.entry_bytes || file_bytes != expected.bytes)
        return -EBADMSG;
    memcpy(out_header, &header, sizeof(header));
    return 0;
}

int records_adopt(int fd, struct records **out_records)
{
    struct header header = {0};
    struct stat status;

    if (fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || fcntl(fd, F_GET_SEALS) != RECORDS_SEALS)
        return -EBADMSG;
    int err = header_read(fd, (uint64_t)status.st_size, &header);
    if (err)
        return err;
    struct records *records = calloc(1, sizeof(*records));
    if (!records)
        return -ENOMEM;
    records_lay_out(records, &header.options);
    records->fd = fd;
    err = records_map(records);
    if (err) {
        free(records);
        return err;
    }
    records->seed = header.check;
    *out_records = records;
    return 0;
}

void records_destroy(struct records *records)
{
    if (!records)
        return;
    if (records->header)
        (void)munmap(records->header, records->bytes);
    if (records->fd >= 0)
        (void)close(records->fd);
    free(records);
}

int records_fd(const struct records *records)
{
    return records->fd;
}

const struct records_options *records_describe(const struct records *records)
{
    return &records->header->options;
}

uint32_t records_num_slots(const struct records *records)
{
    return records->num_slots;
}

void records_set_writable(struct records *records)
{
    atomic_store(&records->header->is_writable, 1);
}

bool records_is_writable(const struct records *records)
{
    return atomic_load(&records->header->is_writable) != 0;
}

/* ---- records -------------------------------------------------------------------------------- */

static struct entry *entry_at(const struct records *records, uint32_t slot)
{
    assert(slot >= 1 && slot <= records->num_slots);
    return (struct entry *)(void *)(records->entries + (uint64_t)(slot - 1) * records->entry_bytes);
}

/*
 * Whoever writes to the slot later has heard of it through this thread, so the store is done by
 * then. The fence keeps what follows here (a record's other words) behind it.
 */
void records_clear(struct records *records, uint32_t slot)
{
    atomic_store_explicit(&entry_at(records, slot)->check, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

/* Made and summed up here, then stored: the lines of the table are not waited for. */
void records_write(struct records *records, uint32_t slot, const struct record *record)
{
    struct entry *entry = entry_at(records, slot);
    struct entry next;
    size_t form_bytes = record->num_form * sizeof(next.form[0]);

    assert(record->num_form <= records->header->options.max_form);
    memcpy(next.key, record->key, sizeof(next.key));
    if (record->has_parent)
        memcpy(next.parent, record->parent, sizeof(next.parent));
    else
        memset(next.parent, 0, sizeof(next.parent));
    next.extra = record->extra;
    next.epoch = record->epoch;
    next.generation = record->generation;
    next.num_tokens = record->num_tokens;
    next.num_form = (uint16_t)record->num_form;
    next.has_parent = record->has_parent;
    next.is_storable = record->is_storable;
    next.is_generated = record->is_generated;
    memcpy(next.form, record->form, form_bytes);
    uint64_t check = entry_check(records, slot, &next);
    records_clear(records, slot);
    memcpy(entry->key, next.key, offsetof(struct entry, form) - offsetof(struct entry, key));
    memcpy(entry->form, next.form, form_bytes);
    atomic_store_explicit(&entry->check, check, memory_order_release);
}

int records_read(const struct records *records, uint32_t slot, struct record *out_record)
{
    if (slot < 1 || slot > records->num_slots)
        return -ENOENT;
    const struct entry *entry = entry_at(records, slot);
    uint64_t check = atomic_load_explicit(&entry->check, memory_order_acquire);

    if (check == 0)
        return -ENOENT;
    if (entry->num_form > records->header->options.max_form ||
        check != entry_check(records, slot, entry))
        return -EBADMSG;
    *out_record = (struct record){.extra = entry->extra,
                                  .epoch = entry->epoch,
                                  .generation = entry->generation,
                                  .num_tokens = entry->num_tokens,
                                  .num_form = entry->num_form,
                                  .has_parent = entry->has_parent != 0,
                                  .is_storable = entry->is_storable != 0,
                                  .is_generated = entry->is_generated != 0};
    memcpy(out_record->key, entry->key, sizeof(entry->key));
    memcpy(out_record->parent, entry->parent, sizeof(entry->parent));
    memcpy(out_record->form, entry->form, entry->num_form * sizeof(entry->form[0]));
    return 0;
}

/* ---- walks ---------------------------------------------------------------------------------- */

/* Those that begin before an offset of the file. */
static uint64_t slots_before(const struct records *records, uint64_t offset)
{
    return (offset - HEADER_BYTES + records->entry_bytes - 1) / records->entry_bytes;
}

/* Reading a hole would fill it with a page, so the file says where there is something. */
static bool next_written(const struct records *records, struct records_walk *walk)
{
    off_t from = (off_t)(HEADER_BYTES + (uint64_t)walk->end * records->entry_bytes);
    off_t at = lseek(records->fd, from, SEEK_DATA);
    off_t end = at < 0 ? -1 : lseek(records->fd, at, SEEK_HOLE);

    if (at < 0 || end < 0) { /* there is no more; or it cannot tell: look at each */
        bool is_over = at < 0 && errno == ENXIO;
        walk->end = is_over ? walk->end : records->num_slots;
        return !is_over;
    }
    /* A slot whose first byte lies in a hole has no record, whatever its last ones do. */
    uint64_t first = slots_before(records, (uint64_t)at);
    if (first > walk->end)
        walk->slot = (uint32_t)first;
    walk->end = (uint32_t)slots_before(records, (uint64_t)end);
    if (walk->end > records->num_slots)
        walk->end = records->num_slots;
    return true;
}

bool records_next(const struct records *records, struct records_walk *walk)
{
    while (walk->slot < records->num_slots) {
        if (walk->slot == walk->end && !next_written(records, walk))
            return false;
        walk->slot++;
        if (atomic_load_explicit(&entry_at(records, walk->slot)->check, memory_order_acquire) != 0)
            return true;
    }
    return false;
}

uint32_t records_granules(const struct records *records, uint64_t *granules)
{
    uint32_t slots = records->header->options.arena.granule.slots, count = 0;
    struct records_walk walk = {0};
    struct record record;

    memset(granules, 0, ((size_t)records->num_granules + 63) / 64 * sizeof(*granules));
    while (records_next(records, &walk)) {
        uint32_t granule = (walk.slot - 1) / slots;
        if (granules[granule / 64] >> granule % 64 & 1 || records_read(records, walk.slot, &record))
            continue;
        granules[granule / 64] |= UINT64_C(1) << granule % 64;
        count++;
    }
    return count;
}
