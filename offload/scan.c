/* offload/scan.c - reads the headers of all granules in use, in large reads by two threads, and
 * gives what is valid to the owner in batches. */
#include "offload/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static const uint64_t READ_BYTES = 1 << 20; /* at a time, unless one granule's headers are more */

static struct scan_batch *batch_of(struct disk_item *item)
{
    return (struct scan_batch *)item;
}

/* NULL: stop. */
static struct scan_batch *free_batch(struct disk_scanner *scanner)
{
    struct disk_item *item;

    (void)pthread_mutex_lock(&scanner->mutex);
    while (!(item = disk_list_pop(&scanner->free_batches)) && !atomic_load(&scanner->is_stopping))
        (void)pthread_cond_wait(&scanner->wake, &scanner->mutex);
    (void)pthread_mutex_unlock(&scanner->mutex);
    if (item)
        batch_of(item)->num = batch_of(item)->num_taken = 0;
    return item ? batch_of(item) : NULL;
}

static void give(struct disk_scanner *scanner, struct scan_batch **batch)
{
    if (*batch)
        disk_queue_add(scanner->to_owner, &(*batch)->item);
    *batch = NULL;
}

/* False: stop. */
static bool find(struct disk_scanner *scanner, const struct format_header *header,
                 struct scan_batch **batch)
{
    if (!*batch)
        *batch = free_batch(scanner);
    if (!*batch)
        return false;
    (*batch)->headers[(*batch)->num++] = *header;
    atomic_fetch_add(&scanner->num_found, 1);
    if ((*batch)->num == SCAN_BATCH_HEADERS)
        give(scanner, batch);
    return true;
}

static uint32_t num_slots(const struct disk_scanner *scanner, const struct format_granule *use)
{
    return (uint32_t)(scanner->layout->granule_bytes / use->stride_bytes);
}

static bool look_at(struct disk_scanner *scanner, const struct format_granule *use,
                    const struct format_header *headers, struct scan_batch **batch)
{
    uint32_t num = num_slots(scanner, use), num_damaged = 0;

    for (uint32_t i = 0; i < num; i++) {
        struct disk_slot slot = {.granule = use->granule, .index = i};
        int found = format_header_verify(&headers[i], use, slot);
        num_damaged += found == FORMAT_DAMAGED;
        if (found == 0 && !find(scanner, &headers[i], batch))
            return false;
    }
    atomic_fetch_add(&scanner->num_damaged, num_damaged);
    atomic_fetch_add(&scanner->num_read, num);
    return true;
}

static int read_headers(struct disk_scanner *scanner, char *buffer, uint64_t bytes, uint64_t offset)
{
    const struct disk_faults *faults = scanner->faults;
    struct disk_io io = {
        .kind = DISK_IO_HEADER, .offset = offset, .bytes = (uint32_t)bytes, .buffer = buffer};
    uint64_t done = 0;

    while (done < bytes) {
        ssize_t num = scanner->system->pread(scanner->fd, buffer + done, bytes - done,
                                             (off_t)(offset + done));
        if (num < 0 && errno == EINTR)
            continue;
        if (num <= 0)
            return num < 0 ? -errno : -EIO;
        done += (uint64_t)num;
    }
    int result = faults && faults->end ? faults->end(faults->state, &io, (int)bytes) : 0;
    return result < 0 ? result : 0;
}

/* Reads the headers of @num granules that lie side by side. False: stop. */
static bool scan_run(struct disk_scanner *scanner, const struct format_granule *uses, uint32_t num,
                     char *buffer, struct scan_batch **batch)
{
    uint64_t each = scanner->layout->granule_headers_bytes;
    struct disk_slot first = {.granule = uses[0].granule};
    int err =
        read_headers(scanner, buffer, num * each, format_header_offset(scanner->layout, first));

    for (uint32_t i = 0; err && i < num; i++) {
        atomic_fetch_add(&scanner->num_unreadable, num_slots(scanner, &uses[i]));
        atomic_fetch_add(&scanner->num_read, num_slots(scanner, &uses[i]));
        atomic_store(&scanner->status, err);
    }
    for (uint32_t i = 0; !err && i < num; i++) {
        const void *headers = buffer + i * each;
        if (!look_at(scanner, &uses[i], headers, batch))
            return false;
    }
    return true;
}

static void scan_all(struct disk_scanner *scanner, char *buffer, uint32_t at_once,
                     struct scan_batch **batch)
{
    while (!atomic_load(&scanner->is_stopping)) {
        uint32_t at = atomic_fetch_add(&scanner->next_use, at_once);
        if (at >= scanner->num_uses)
            return;
        uint32_t end = at + at_once < scanner->num_uses ? at + at_once : scanner->num_uses;
        while (at < end) {
            const struct format_granule *uses = &scanner->uses[at];
            uint32_t num = 1;
            while (at + num < end && uses[num].granule == uses[0].granule + num)
                num++;
            if (!scan_run(scanner, uses, num, buffer, batch))
                return;
            at += num;
        }
    }
}

/* The last thing the owner gets is an empty batch, which nobody has to wait for: the scan is over.
 */
static void running_end(struct disk_scanner *scanner, uint32_t num)
{
    struct scan_batch *end = &scanner->batches[SCAN_BATCHES];

    if (atomic_fetch_sub(&scanner->num_running, num) == num)
        give(scanner, &end);
}

static void *scan_main(void *argument)
{
    struct disk_scanner *scanner = argument;
    uint64_t each = scanner->layout->granule_headers_bytes;
    uint64_t bytes = each < READ_BYTES ? READ_BYTES / each * each : each;
    struct scan_batch *batch = NULL;
    char *buffer = scanner->system->mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (buffer != MAP_FAILED) {
        scan_all(scanner, buffer, (uint32_t)(bytes / each), &batch);
        (void)munmap(buffer, bytes);
    } else {
        atomic_store(&scanner->status, -errno);
    }
    give(scanner, &batch);
    running_end(scanner, 1);
    return NULL;
}

static int start_threads(struct disk_scanner *scanner)
{
    int err = 0;

    atomic_store(&scanner->num_running, SCAN_THREADS);
    while (!err && scanner->num_threads < SCAN_THREADS) {
        err = -scanner->system->thread_create(&scanner->threads[scanner->num_threads], NULL,
                                              scan_main, scanner);
        scanner->num_threads += err == 0;
    }
    if (scanner->num_threads == 0)
        return err;
    if (scanner->num_threads < SCAN_THREADS) /* those that there are may be through by now */
        running_end(scanner, SCAN_THREADS - scanner->num_threads);
    return 0;
}

int disk_scanner_start(struct disk_scanner *scanner, struct format_granule *uses, uint32_t num_uses)
{
    scanner->uses = uses;
    scanner->num_uses = num_uses;
    scanner->batches = scanner->system->calloc(SCAN_BATCHES + 1, sizeof(*scanner->batches));
    if (!scanner->batches)
        return -ENOMEM;
    scanner->batches[SCAN_BATCHES].item.is_batch = true;
    for (uint32_t i = 0; i < SCAN_BATCHES; i++) {
        scanner->batches[i].item.is_batch = true;
        disk_list_push(&scanner->free_batches, &scanner->batches[i].item);
    }
    for (uint32_t i = 0; i < num_uses; i++)
        atomic_fetch_add(&scanner->num_headers, num_slots(scanner, &uses[i]));
    (void)pthread_mutex_init(&scanner->mutex, NULL);
    (void)pthread_cond_init(&scanner->wake, NULL);
    scanner->has_mutex = true;
    return start_threads(scanner);
}

int disk_scanner_stop(struct disk_scanner *scanner, uint32_t timeout_ms)
{
    struct timespec end;

    if (scanner->has_mutex) {
        (void)pthread_mutex_lock(&scanner->mutex);
        atomic_store(&scanner->is_stopping, true);
        (void)pthread_cond_broadcast(&scanner->wake);
        (void)pthread_mutex_unlock(&scanner->mutex);
    }
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)(timeout_ms / 1000) + 1;
    for (; scanner->num_threads > 0; scanner->num_threads--) {
        if (pthread_timedjoin_np(scanner->threads[scanner->num_threads - 1], NULL, &end) != 0)
            return -ETIMEDOUT;
    }
    if (scanner->has_mutex) {
        (void)pthread_cond_destroy(&scanner->wake);
        (void)pthread_mutex_destroy(&scanner->mutex);
    }
    free(scanner->batches);
    free(scanner->uses);
    *scanner = (struct disk_scanner){.system = scanner->system};
    return 0;
}

void disk_scanner_give_back(struct disk_scanner *scanner)
{
    struct disk_item *item;

    if (!scanner->given.head)
        return;
    (void)pthread_mutex_lock(&scanner->mutex);
    while ((item = disk_list_pop(&scanner->given)) != NULL)
        disk_list_push(&scanner->free_batches, item);
    (void)pthread_cond_broadcast(&scanner->wake);
    (void)pthread_mutex_unlock(&scanner->mutex);
}
