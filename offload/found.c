/* offload/found.c - what a scan found, given out by the owner: D1 of disk.c. */
#include "offload/owner.h"

#include <errno.h>
#include <stdlib.h>

int disk_scan_start(struct disk *disk)
{
    struct disk_scanner *scanner = &disk->scanner;
    uint32_t num = 0;

    if (scanner->is_started)
        return -EALREADY;
    struct format_granule *uses = disk->system->calloc(disk->layout.num_granules, sizeof(*uses));
    if (!uses)
        return -ENOMEM;
    for (uint32_t i = 0; i < disk->layout.num_granules && !disk->is_new; i++) {
        if (disk->granule_states[i] == GRANULE_USED)
            uses[num++] = disk->granules[i];
    }
    scanner->is_started = true;
    scanner->faults = disk->options.faults;
    scanner->layout = &disk->layout;
    scanner->to_owner = &disk->to_owner;
    scanner->fd = disk->lane.data_fd;
    return disk_scanner_start(scanner, uses, num);
}

/* False: out of date, since the granule or the slot has been used since. */
static bool give_out(struct disk *disk, const struct format_header *header, struct disk_found *out)
{
    struct disk_slot slot = {.granule = header->granule, .index = header->index};
    size_t number = disk_slot_number(disk, slot);
    struct slot_hashes *hashes = &disk->hashes[number];

    if (disk->granule_states[slot.granule] != GRANULE_USED ||
        disk->granules[slot.granule].generation != header->generation || disk->uses[number] != 0 ||
        hashes->record != 0 || hashes->data != 0)
        return false;
    *hashes = (struct slot_hashes){
        .record = format_record_hash(header->record, header->record_bytes),
        .data = header->data_hash,
    };
    *out = (struct disk_found){
        .slot = slot,
        .bytes = header->bytes,
        .record_bytes = header->record_bytes,
        .record = header->record,
    };
    return true;
}

size_t disk_scan_reap(struct disk *disk, struct disk_found *out, size_t max)
{
    struct disk_scanner *scanner = &disk->scanner;
    size_t num = 0;

    disk_take_items(disk);
    disk_scanner_give_back(scanner);
    while (num < max && scanner->taken.head) {
        struct scan_batch *batch = (struct scan_batch *)scanner->taken.head;
        while (num < max && batch->num_taken < batch->num)
            num += give_out(disk, &batch->headers[batch->num_taken++], &out[num]);
        if (batch->num_taken < batch->num)
            break;
        scanner->is_over = batch->num == 0; /* it is the last one */
        disk_list_push(&scanner->given, disk_list_pop(&scanner->taken));
    }
    disk_keep_event(disk);
    return num;
}

void disk_scan_progress(const struct disk *disk, struct disk_scan *out_scan)
{
    const struct disk_scanner *scanner = &disk->scanner;

    *out_scan = (struct disk_scan){
        .is_over = scanner->is_over,
        .num_headers = atomic_load(&scanner->num_headers),
        .num_read = atomic_load(&scanner->num_read),
        .num_found = atomic_load(&scanner->num_found),
        .num_damaged = atomic_load(&scanner->num_damaged),
        .num_unreadable = atomic_load(&scanner->num_unreadable),
        .status = atomic_load(&scanner->status),
    };
}
