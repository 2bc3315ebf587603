/* daemon/kept.c - names of what is kept: written, read, and put together to arenas. */
#include "daemon/kept.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum part { PART_FILE, PART_READER, PART_RECORDS, NUM_PARTS };

static const char *const part_names[] = {"file", "reader", "records"};

static void name_format(char out[KEEP_MAX_NAME], uint64_t number, enum part part)
{
    (void)snprintf(out, KEEP_MAX_NAME, "%" PRIu64 ".%s", number, part_names[part]);
}

/* Only what name_format() gives. */
static bool name_parse(const char *name, uint64_t *out_number, enum part *out_part)
{
    char *end, again[KEEP_MAX_NAME];
    uint64_t number = strtoull(name, &end, 10);

    for (int part = 0; part < NUM_PARTS; part++) {
        name_format(again, number, (enum part)part);
        if (strcmp(name, again) != 0)
            continue;
        *out_number = number;
        *out_part = (enum part)part;
        return true;
    }
    return false;
}

/* ---- sorting -------------------------------------------------------------------------------- */

static void item_drop(struct keep *keep, struct kept *kept, const struct keep_item *item)
{
    (void)close(item->fd);
    keep_remove(keep, item->name);
    kept->num_dropped++;
}

static struct kept_arena *arena_find(struct kept *kept, uint64_t number)
{
    for (uint32_t i = 0; i < kept->num_arenas; i++) {
        if (kept->arenas[i].number == number)
            return &kept->arenas[i];
    }
    struct kept_arena *arena = &kept->arenas[kept->num_arenas++];
    *arena = (struct kept_arena){.number = number, .files = {-1, -1}};
    if (number >= kept->next_number)
        kept->next_number = number + 1;
    return arena;
}

static void item_sort(struct keep *keep, struct kept *kept, const struct keep_item *item)
{
    char mount[KEEP_MAX_NAME];
    uint64_t number;
    enum part part;

    for (uint32_t tier = 0; tier < KEPT_TIERS; tier++) {
        (void)snprintf(mount, sizeof(mount), "mount.%u", tier);
        if (strcmp(item->name, mount) == 0) {
            kept->mount_fds[tier] = item->fd;
            return;
        }
    }
    if (!name_parse(item->name, &number, &part)) {
        item_drop(keep, kept, item);
        return;
    }
    struct kept_arena *arena = arena_find(kept, number);
    if (part == PART_RECORDS) {
        int err = records_adopt(item->fd, &arena->records);
        if (err) {
            kept->problem = err;
            item_drop(keep, kept, item);
        }
    } else if (part == PART_READER) {
        arena->files.reader_fd = item->fd;
    } else {
        arena->files.fd = item->fd;
    }
}

static void arena_close(struct kept_arena *arena)
{
    if (arena->files.fd >= 0)
        (void)close(arena->files.fd);
    if (arena->files.reader_fd >= 0)
        (void)close(arena->files.reader_fd);
    records_destroy(arena->records);
    arena->files = (struct gpu_arena_files){-1, -1};
    arena->records = NULL;
}

/* The keeper was killed, or we were, before it had all of them. */
static void halves_drop(struct keep *keep, struct kept *kept)
{
    for (uint32_t i = 0; i < kept->num_arenas;) {
        struct kept_arena *arena = &kept->arenas[i];
        if (arena->records && arena->files.fd >= 0) {
            i++;
            continue;
        }
        arena_close(arena);
        kept_remove(keep, arena->number);
        kept->num_dropped++;
        *arena = kept->arenas[--kept->num_arenas];
    }
}

int kept_sort(struct keep *keep, struct kept *out_kept)
{
    size_t count;
    const struct keep_item *items = keep_taken(keep, &count);
    struct kept kept = {.arenas = calloc(count > 0 ? count : 1, sizeof(*kept.arenas))};

    for (uint32_t tier = 0; tier < KEPT_TIERS; tier++)
        kept.mount_fds[tier] = -1;
    for (size_t i = 0; i < count; i++) {
        if (kept.arenas)
            item_sort(keep, &kept, &items[i]);
        else
            item_drop(keep, &kept, &items[i]);
    }
    if (kept.arenas)
        halves_drop(keep, &kept);
    else
        kept.problem = -ENOMEM;
    *out_kept = kept;
    return kept.arenas ? 0 : -ENOMEM;
}

void kept_finish(struct kept *kept)
{
    for (uint32_t i = 0; kept->arenas && i < kept->num_arenas; i++)
        arena_close(&kept->arenas[i]);
    free(kept->arenas);
    for (uint32_t tier = 0; kept->arenas && tier < KEPT_TIERS; tier++) {
        if (kept->mount_fds[tier] >= 0)
            (void)close(kept->mount_fds[tier]);
    }
    *kept = (struct kept){0};
}

/* ---- handing over --------------------------------------------------------------------------- */

int kept_add(struct keep *keep, struct kept *kept, struct gpu_arena_files files,
             const struct records *records, uint64_t *out_number)
{
    const int fds[] = {files.fd, files.reader_fd, records_fd(records)};
    uint64_t number = kept->next_number++;
    char name[KEEP_MAX_NAME];

    for (int part = 0; part < NUM_PARTS; part++) {
        if (fds[part] < 0)
            continue;
        name_format(name, number, (enum part)part);
        int err = keep_add(keep, name, fds[part]);
        if (err) {
            kept_remove(keep, number);
            return err;
        }
    }
    *out_number = number;
    return 0;
}

void kept_remove(struct keep *keep, uint64_t number)
{
    char name[KEEP_MAX_NAME];

    for (int part = 0; part < NUM_PARTS; part++) {
        name_format(name, number, (enum part)part);
        keep_remove(keep, name);
    }
}

int kept_add_mount(struct keep *keep, uint32_t tier, int fd)
{
    char name[KEEP_MAX_NAME];

    (void)snprintf(name, sizeof(name), "mount.%u", tier);
    return keep_add(keep, name, fd);
}

void kept_remove_mount(struct keep *keep, uint32_t tier)
{
    char name[KEEP_MAX_NAME];

    (void)snprintf(name, sizeof(name), "mount.%u", tier);
    keep_remove(keep, name);
}

void kept_close(struct kept *kept, uint32_t at)
{
    arena_close(&kept->arenas[at]);
}

void kept_drop(struct kept *kept, uint32_t at)
{
    arena_close(&kept->arenas[at]);
    kept->arenas[at] = kept->arenas[--kept->num_arenas];
}
