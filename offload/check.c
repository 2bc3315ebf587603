/* offload/check.c - reads a disk offline and says what is wrong with it; changes nothing. */
#include "offload/owner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check {
    const struct disk_syscalls *system;
    struct disk_files files;
    struct format_layout layout;
    bool with_data;
    void (*report)(void *state, const struct disk_problem *problem);
    void *state;
    struct disk_check *out;
    char *data; /* of one granule at most */
};

static void say(const struct check *check, const char *part, struct disk_slot slot,
                const char *text)
{
    struct disk_problem problem = {.part = part, .slot = slot, .text = text};

    if (check->report)
        check->report(check->state, &problem);
}

static void check_data(const struct check *check, const struct format_granule *use,
                       const struct format_header *header, struct disk_slot slot)
{
    uint64_t offset = format_data_offset(&check->layout, slot, use->stride_bytes);
    uint64_t seed = format_record_hash(header->record, header->record_bytes);

    if (disk_read_all(check->system, check->files.table_fd, check->data, header->bytes, offset)) {
        check->out->unreadable_bytes += header->bytes;
        check->out->data_damaged++;
        say(check, "data", slot, "cannot be read");
    } else if (hash_choose()->hash(check->data, header->bytes, seed) != header->data_hash) {
        check->out->data_damaged++;
        say(check, "data", slot, "is not what was written: a read of it is a miss");
    } else {
        check->out->data_valid++;
    }
}

static void check_header(const struct check *check, const struct format_granule *use,
                         const struct format_header *header, struct disk_slot slot)
{
    switch (format_header_verify(header, use, slot)) {
    case 0:
        check->out->headers_valid++;
        if (check->with_data)
            check_data(check, use, header, slot);
        break;
    case FORMAT_STALE:
        check->out->headers_stale++;
        break;
    case FORMAT_DAMAGED:
        check->out->headers_damaged++;
        say(check, "header", slot, "is torn or spoilt: the slot is free");
        break;
    default:
        break;
    }
}

static void check_headers(const struct check *check, const struct format_granule *use,
                          struct format_header *headers)
{
    struct disk_slot slot = {.granule = use->granule};
    uint32_t num = (uint32_t)(check->layout.granule_bytes / use->stride_bytes);
    size_t bytes = num * sizeof(*headers);

    if (disk_read_all(check->system, check->files.table_fd, headers, bytes,
                      format_header_offset(&check->layout, slot))) {
        check->out->unreadable_bytes += bytes;
        say(check, "header", slot, "none of this granule's can be read");
        return;
    }
    for (slot.index = 0; slot.index < num; slot.index++)
        check_header(check, use, &headers[slot.index], slot);
}

static void check_granules(const struct check *check, struct format_header *headers)
{
    const struct format_layout *layout = &check->layout;

    for (uint32_t i = 0; i < layout->num_granules; i++) {
        struct format_granule entry;
        struct disk_slot slot = {.granule = i};
        int err = disk_read_all(check->system, check->files.table_fd, &entry, sizeof(entry),
                                format_granule_offset(layout, i));
        if (err) {
            check->out->unreadable_bytes += sizeof(entry);
            say(check, "granule", slot, "its entry cannot be read");
            continue;
        }
        int found = format_granule_verify(&entry, layout, i);
        if (found == FORMAT_DAMAGED) {
            check->out->granules_damaged++;
            say(check, "granule", slot, "its entry is torn or spoilt: it is free");
        } else if (found == 0) {
            check->out->granules_used++;
            check_headers(check, &entry, headers);
        }
    }
}

static int check_all(struct check *check, const char *path, char *out_error)
{
    int err = disk_superblock_read(check->system, &check->files, path, &check->layout, out_error);
    if (err == FORMAT_EMPTY)
        return disk_error(out_error, -ENODATA, "%s is empty: nothing was ever laid out in it",
                          path);
    if (err)
        return err;

    struct format_header *headers =
        check->system->calloc(check->layout.max_slots, sizeof(*headers));
    check->data = check->system->calloc(1, check->layout.granule_bytes);
    if (headers && check->data)
        check_granules(check, headers);
    else
        err = disk_error(out_error, -ENOMEM, "no memory for a granule of %" PRIu64 " bytes",
                         check->layout.granule_bytes);
    free(check->data);
    free(headers);
    return err;
}

int disk_check(const char *path, bool with_data,
               void (*report)(void *state, const struct disk_problem *problem), void *state,
               struct disk_check *out_check, char *out_error)
{
    struct disk_check found = {0};
    struct check check = {.system = &disk_syscalls,
                          .with_data = with_data,
                          .report = report,
                          .state = state,
                          .out = &found};

    int err = disk_files_open(check.system, path, true, &check.files, out_error);
    if (err)
        return err;
    found.file_bytes = check.files.bytes;
    found.physical_bytes = check.files.physical_bytes + check.files.lock_bytes;
    err = check_all(&check, path, out_error);
    disk_files_close(&check.files);
    if (!err)
        *out_check = found;
    return err;
}
