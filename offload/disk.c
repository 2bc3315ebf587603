/* offload/disk.c - the owner's side: requests, completions, deadlines, accounts.
 *
 *  D1  A slot has a block only if its hashes say so; they are set when a write has ended with 0, or
 *      a scan has given the block out, and taken away when a write of it begins.
 *  D2  A slot that the kernel may write to is SLOT_WRITTEN or SLOT_QUARANTINED, and its granule has
 *      an operation: neither is given to anything else.
 *  D3  Every operation is ended for the caller exactly once: when the lane gives it back, or
 * before, by leaving it (its phase then is PHASE_LEFT). Its record is free when the lane has.
 */
#include "offload/owner.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

static const struct slot_hashes NO_BLOCK = {.data = 1};

size_t disk_slot_number(const struct disk *disk, struct disk_slot slot)
{
    return (size_t)slot.granule * disk->layout.max_slots + slot.index;
}

uint32_t disk_num_slots(const struct disk *disk, uint32_t granule)
{
    return (uint32_t)(disk->layout.granule_bytes / disk->granules[granule].stride_bytes);
}

int disk_event_fd(const struct disk *disk)
{
    return disk->to_owner.event_fd;
}

void disk_layout(const struct disk *disk, struct disk_layout *out_layout)
{
    *out_layout = (struct disk_layout){
        .num_granules = disk->layout.num_granules,
        .granule_bytes = disk->layout.granule_bytes,
        .max_slots = disk->layout.max_slots,
        .file_bytes = disk->layout.file_bytes,
        .is_new = disk->is_new,
    };
}

size_t disk_fallbacks(const struct disk *disk, struct gpu_fallback *out, size_t max)
{
    return disk_fallback_list(&disk->fallbacks, out, max);
}

/* --- operations --- */

static uint64_t now(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Stores leave a quarter of the records to loads. */
static struct disk_op *op_take(struct disk *disk, enum disk_op_kind kind, uint64_t cookie)
{
    bool is_store = kind == OP_WRITE || kind == OP_ERASE;
    uint32_t left = is_store ? disk->options.max_operations / 4 : 0;
    struct disk_op *op =
        disk->num_free_ops > left ? disk_op_of(disk_list_pop(&disk->free_ops)) : NULL;

    if (!op)
        return NULL;
    disk->num_free_ops--;
    op->kind = kind;
    op->cookie = cookie;
    op->is_told = op->is_quarantined = op->is_cancelled = op->was_in_kernel = false;
    op->is_counted = false;
    op->status = 0;
    op->next_told = NULL;
    return op;
}

static void op_free(struct disk *disk, struct disk_op *op)
{
    disk_list_push(&disk->free_ops, &op->item);
    disk->num_free_ops++;
}

/* Counts it as under way and hands it to the lane. */
static void op_submit(struct disk *disk, struct disk_op *op)
{
    op->deadline_ns = now() + (uint64_t)disk->options.deadline_ms * 1000000;
    op->older = disk->newest;
    op->newer = NULL;
    if (disk->newest)
        disk->newest->newer = op;
    else
        disk->oldest = op;
    disk->newest = op;
    disk->stats.num_queued++;
    disk->granule_ops[op->slot.granule]++;
    disk_lane_submit(&disk->lane, op);
}

/* It is ended for the caller: no longer among those under way. */
static void op_unlink(struct disk *disk, struct disk_op *op)
{
    if (op->older)
        op->older->newer = op->newer;
    else
        disk->oldest = op->newer;
    if (op->newer)
        op->newer->older = op->older;
    else
        disk->newest = op->older;
    disk->stats.num_queued--;
    if (op->kind == OP_WRITE)
        disk->stats.queued_bytes -= op->bytes;
}

/* --- granules --- */

int disk_granule_describe(const struct disk *disk, uint32_t granule,
                          struct disk_granule *out_granule)
{
    if (granule >= disk->layout.num_granules)
        return -EINVAL;
    const struct format_granule *entry = &disk->granules[granule];
    enum granule_state state = disk->granule_states[granule];

    *out_granule =
        (struct disk_granule){.is_used = state == GRANULE_USED || state == GRANULE_BEGINNING};
    if (!out_granule->is_used)
        return 0;
    out_granule->stride_bytes = entry->stride_bytes;
    out_granule->num_slots = disk_num_slots(disk, granule);
    out_granule->owner_bytes = entry->owner_bytes;
    memcpy(out_granule->owner, entry->owner, sizeof(entry->owner));
    return 0;
}

static int granule_find(const struct disk *disk, uint32_t granule, enum granule_state wanted)
{
    if (granule >= disk->layout.num_granules)
        return -EINVAL;
    if (disk->granule_ops[granule] > 0)
        return -EBUSY;
    return disk->granule_states[granule] == wanted ? 0 : -EALREADY;
}

/* Its slots have no blocks. */
static void forget_blocks(struct disk *disk, uint32_t granule)
{
    size_t first = disk_slot_number(disk, (struct disk_slot){.granule = granule});

    memset(&disk->hashes[first], 0, disk->layout.max_slots * sizeof(disk->hashes[0]));
}

static int granule_submit(struct disk *disk, struct disk_op *op, uint32_t granule, bool is_use)
{
    op->is_use = is_use;
    op->slot = (struct disk_slot){.granule = granule};
    op->offset = format_granule_offset(&disk->layout, granule);
    op->granule = disk->granules[granule];
    op->granule.granule = granule;
    op->granule.is_used = is_use;
    format_granule_seal(&op->granule);
    disk->granule_states[granule] = is_use ? GRANULE_BEGINNING : GRANULE_ENDING;
    forget_blocks(disk, granule);
    op_submit(disk, op);
    return 0;
}

static int busy(struct disk *disk)
{
    disk->stats.busy++;
    return DISK_BUSY;
}

int disk_granule_use(struct disk *disk, uint32_t granule, uint32_t stride_bytes, const void *owner,
                     size_t owner_bytes, uint64_t cookie)
{
    if (stride_bytes == 0 || stride_bytes % DISK_ALIGN != 0 ||
        stride_bytes > disk->layout.granule_bytes ||
        disk->layout.granule_bytes / stride_bytes > disk->layout.max_slots ||
        owner_bytes > DISK_MAX_OWNER_BYTES)
        return -EINVAL;
    int err = granule_find(disk, granule, GRANULE_FREE);
    if (!err)
        err = disk_state_refuses(disk, true);
    if (err)
        return err;
    struct disk_op *op = op_take(disk, OP_GRANULE, cookie);
    if (!op)
        return busy(disk);

    struct format_granule *entry = &disk->granules[granule];
    *entry = (struct format_granule){
        .generation = disk->next_generation++,
        .stride_bytes = stride_bytes,
        .owner_bytes = (uint32_t)owner_bytes,
    };
    if (owner_bytes > 0)
        memcpy(entry->owner, owner, owner_bytes);
    disk->stats.used_granules++;
    return granule_submit(disk, op, granule, true);
}

int disk_granule_free(struct disk *disk, uint32_t granule, uint64_t cookie)
{
    int err = granule_find(disk, granule, GRANULE_USED);
    if (err)
        return err;
    struct disk_op *op = op_take(disk, OP_GRANULE, cookie);
    if (!op)
        return busy(disk);
    return granule_submit(disk, op, granule, false);
}

static void granule_end(struct disk *disk, const struct disk_op *op, int status)
{
    bool is_used = op->is_use && status == 0;

    disk->granule_states[op->slot.granule] = is_used ? GRANULE_USED : GRANULE_FREE;
    if (!is_used)
        disk->stats.used_granules--;
}

/* --- blocks --- */

static bool slot_is_valid(const struct disk *disk, struct disk_slot slot)
{
    return slot.granule < disk->layout.num_granules &&
           disk->granule_states[slot.granule] == GRANULE_USED &&
           slot.index < disk_num_slots(disk, slot.granule);
}

static bool block_is_valid(const struct disk *disk, struct disk_slot slot, uint32_t bytes)
{
    return slot_is_valid(disk, slot) && bytes > 0 && bytes <= disk->options.max_block_bytes &&
           bytes <= disk->granules[slot.granule].stride_bytes;
}

static void set_place(const struct disk *disk, struct disk_op *op, struct disk_slot slot,
                      uint32_t bytes)
{
    op->slot = slot;
    op->bytes = bytes;
    op->offset = format_data_offset(&disk->layout, slot, disk->granules[slot.granule].stride_bytes);
}

int disk_write(struct disk *disk, struct disk_slot slot, const void *memory, uint32_t bytes,
               const void *record, size_t record_bytes, uint64_t cookie)
{
    if (!block_is_valid(disk, slot, bytes) || record_bytes > DISK_MAX_RECORD_BYTES)
        return -EINVAL;
    size_t number = disk_slot_number(disk, slot);
    if (disk->uses[number] != 0)
        return -EBUSY;
    int err = disk_state_refuses(disk, true);
    if (err)
        return err;
    uint64_t queued_bytes = disk->stats.queued_bytes;
    if (queued_bytes > 0 && queued_bytes + bytes > disk->options.max_store_bytes)
        return busy(disk);
    struct disk_op *op = op_take(disk, OP_WRITE, cookie);
    if (!op)
        return busy(disk);

    set_place(disk, op, slot, bytes);
    op->memory = (void *)memory; /* only read */
    op->record_hash = format_record_hash(record, record_bytes);
    op->header = (struct format_header){
        .record_bytes = (uint32_t)record_bytes,
        .generation = disk->granules[slot.granule].generation,
        .granule = slot.granule,
        .index = slot.index,
        .bytes = bytes,
    };
    if (record_bytes > 0)
        memcpy(op->header.record, record, record_bytes);
    disk->hashes[number] = NO_BLOCK; /* D1 */
    disk->uses[number] = SLOT_WRITTEN;
    disk->stats.queued_bytes += bytes;
    op_submit(disk, op);
    return 0;
}

int disk_read(struct disk *disk, struct disk_slot slot, void *memory, uint32_t bytes,
              uint64_t cookie)
{
    if (!block_is_valid(disk, slot, bytes))
        return -EINVAL;
    size_t number = disk_slot_number(disk, slot);
    if (disk->uses[number] >= SLOT_MAX_READERS)
        return -EBUSY;
    if (disk->hashes[number].record == 0)
        return -ENODATA;
    int err = disk_state_refuses(disk, false);
    if (err)
        return err;
    struct disk_op *op = op_take(disk, OP_READ, cookie);
    if (!op)
        return busy(disk);

    set_place(disk, op, slot, bytes);
    op->memory = memory;
    op->record_hash = disk->hashes[number].record;
    op->data_hash = disk->hashes[number].data;
    disk->uses[number]++;
    op_submit(disk, op);
    return 0;
}

void disk_erase(struct disk *disk, const struct disk_slot *slots, size_t num_slots)
{
    assert(num_slots <= DISK_MAX_BATCH);
    struct disk_op *op = op_take(disk, OP_ERASE, 0);

    if (op)
        op->num_slots = 0;
    for (size_t i = 0; i < num_slots; i++) {
        if (!slot_is_valid(disk, slots[i]) || disk->uses[disk_slot_number(disk, slots[i])] != 0)
            continue;
        disk->hashes[disk_slot_number(disk, slots[i])] = NO_BLOCK;
        if (op)
            op->slots[op->num_slots++] = slots[i];
        disk->stats.erases++;
        disk->stats.erases_skipped += !op;
    }
    if (op && op->num_slots == 0)
        op_free(disk, op);
    else if (op)
        disk_lane_submit(&disk->lane, op);
}

static void write_end(struct disk *disk, const struct disk_op *op, int status)
{
    size_t number = disk_slot_number(disk, op->slot);

    disk->uses[number] = 0;
    if (status) {
        disk->stats.write_failures += status != -ETIMEDOUT && status != -ECANCELED;
        return;
    }
    disk->hashes[number] =
        (struct slot_hashes){.record = op->record_hash, .data = op->data_hash}; /* D1 */
    disk->stats.writes++;
    disk->stats.written_bytes += op->bytes;
}

static void read_end(struct disk *disk, const struct disk_op *op, int status)
{
    size_t number = disk_slot_number(disk, op->slot);
    struct slot_hashes *hashes = &disk->hashes[number];

    disk->uses[number]--;
    if (status == 0) {
        disk->stats.reads++;
        disk->stats.read_bytes += op->bytes;
        return;
    }
    disk->stats.read_failures += status != -EBADMSG && status != -ETIMEDOUT && status != -ECANCELED;
    disk->stats.corrupt += status == -EBADMSG;
    if (status != -EBADMSG || hashes->record != op->record_hash || hashes->data != op->data_hash)
        return;
    *hashes = NO_BLOCK;
    disk_erase(disk, &op->slot, 1);
}

/* --- ends --- */

static void op_end(struct disk *disk, const struct disk_op *op, int status)
{
    disk->stats.timeouts += status == -ETIMEDOUT;
    disk->stats.cancelled += status == -ECANCELED;
    if (!op->is_counted) /* one bad I/O is one, however many headers were in it */
        disk_state_note(disk, status, op->kind != OP_READ);
    disk->granule_ops[op->slot.granule]--;
    if (op->kind == OP_WRITE)
        write_end(disk, op, status);
    else if (op->kind == OP_READ)
        read_end(disk, op, status);
    else
        granule_end(disk, op, status);
}

/* D2: what the kernel may write to stays. */
static void quarantine(struct disk *disk, struct disk_op *op)
{
    op->is_quarantined = true;
    disk->granule_ops[op->slot.granule]++;
    if (op->kind == OP_WRITE)
        disk->uses[disk_slot_number(disk, op->slot)] = SLOT_QUARANTINED;
}

static void release(struct disk *disk, struct disk_op *op)
{
    disk->granule_ops[op->slot.granule]--;
    if (op->kind == OP_WRITE)
        disk->uses[disk_slot_number(disk, op->slot)] = 0;
}

/* D3: ends an operation that the lane has, unless it is over or its bytes are being copied. */
static bool op_leave(struct disk *disk, struct disk_op *op, int status)
{
    if (!lane_enter(op, PHASE_QUEUED, PHASE_LEFT)) {
        if (!lane_enter(op, PHASE_KERNEL, PHASE_LEFT))
            return false;
        op->was_in_kernel = true;
        disk->stats.num_quarantined++;
    }
    op->is_told = true;
    op->told_status = status;
    op_unlink(disk, op);
    op_end(disk, op, status);
    if (op->was_in_kernel && op->kind != OP_READ)
        quarantine(disk, op);
    if (disk->last_told)
        disk->last_told->next_told = op;
    else
        disk->first_told = op;
    disk->last_told = op;
    disk_event_set(disk->to_owner.event_fd);
    disk->is_event_set = true;
    return true;
}

void disk_tick(struct disk *disk, uint64_t now_ns)
{
    struct disk_op *next;

    disk->now_ns = now_ns;
    for (struct disk_op *op = disk->oldest; op; op = next) {
        next = op->newer;
        if (op->deadline_ns <= now_ns)
            (void)op_leave(disk, op, -ETIMEDOUT);
        else if (op->is_cancelled)
            (void)op_leave(disk, op, -ECANCELED);
    }
    disk_state_probe(disk);
}

int disk_cancel(struct disk *disk, uint64_t cookie)
{
    for (struct disk_op *op = disk->newest; op; op = op->older) {
        if (op->cookie != cookie)
            continue;
        op->is_cancelled = true; /* if it is being copied now it may be left at the next tick */
        (void)op_leave(disk, op, -ECANCELED);
        return 0;
    }
    return -ENOENT;
}

void disk_take_items(struct disk *disk)
{
    struct disk_list list = {0};
    struct disk_item *item;

    if (!disk->is_event_set && disk_queue_is_empty(&disk->to_owner))
        return;
    disk_event_clear(disk->to_owner.event_fd); /* Q1: before */
    disk->is_event_set = false;
    disk_queue_take(&disk->to_owner, &list);
    while ((item = disk_list_pop(&list)) != NULL)
        disk_list_push(item->is_batch ? &disk->scanner.taken : &disk->done, item);
}

void disk_keep_event(struct disk *disk)
{
    const struct disk_scanner *scanner = &disk->scanner;
    /* Also if the scan waits for batches that the owner has not given back. */
    bool has_scanned = !scanner->is_over && (scanner->taken.head || scanner->given.head);

    if (disk->is_event_set || (!disk->first_told && !disk->done.head && !has_scanned))
        return;
    disk_event_set(disk->to_owner.event_fd);
    disk->is_event_set = true;
}

/* Ends what the lane gave back. True: there is something to say to the caller. */
static bool given_back(struct disk *disk, struct disk_op *op, struct disk_completion *out)
{
    if (op->kind == OP_PROBE) {
        disk_state_probed(disk);
        return false;
    }
    if (op->kind == OP_ERASE)
        return false;
    *out = (struct disk_completion){.cookie = op->cookie, .kind = DISK_ENDED};
    if (!op->is_told) {
        out->status = op->status;
        op_unlink(disk, op);
        op_end(disk, op, op->status);
        return true;
    }
    disk->stats.num_quarantined -= op->was_in_kernel;
    if (!op->is_quarantined)
        return false;
    out->kind = DISK_RELEASED;
    release(disk, op);
    return true;
}

size_t disk_reap(struct disk *disk, struct disk_completion *out, size_t max)
{
    size_t num = 0;

    disk_take_items(disk);
    while (num < max && disk->first_told) {
        struct disk_op *op = disk->first_told;
        disk->first_told = op->next_told;
        if (!disk->first_told)
            disk->last_told = NULL;
        out[num++] = (struct disk_completion){.cookie = op->cookie,
                                              .status = op->told_status,
                                              .kind = DISK_ENDED,
                                              .is_quarantined = op->is_quarantined};
    }
    while (num < max && !disk->first_told && disk->done.head) {
        struct disk_op *op = disk_op_of(disk_list_pop(&disk->done));
        num += given_back(disk, op, &out[num]);
        if (op->kind != OP_PROBE)
            op_free(disk, op);
    }
    disk_keep_event(disk);
    return num;
}

void disk_stats(const struct disk *disk, struct disk_stats *out_stats)
{
    const struct disk_lane *lane = &disk->lane;

    *out_stats = disk->stats;
    out_stats->max_bytes = disk->options.max_bytes;
    out_stats->num_in_kernel = atomic_load_explicit(&lane->seen_in_kernel, memory_order_relaxed);
    out_stats->free_buffers = atomic_load_explicit(&lane->seen_free, memory_order_relaxed);
    out_stats->header_writes = atomic_load_explicit(&lane->header_writes, memory_order_relaxed);
    uint64_t bytes = atomic_load_explicit(&lane->physical_bytes, memory_order_relaxed);
    out_stats->physical_bytes = bytes ? bytes + disk->lock_bytes : 0;
}
