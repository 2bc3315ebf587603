/* offload/blocks.c - blocks on their way between the caller's memory and the disk.
 *
 * Reads go first: while stores fill the queue, a load finds a quarter of the depth and of the
 * buffers for itself.
 */
#include "offload/lane.h"

#include <errno.h>
#include <string.h>

/* Copied or verified before the kernel is asked again what is done: about 10 us. */
static const uint32_t SLICE_BYTES = 128 << 10;

/*
 * A read waits for the writes that the disk has: 64 MiB of them took 20 ms. While there are reads,
 * it has few; 2 MiB blocks are then written at three quarters of the speed. Without any, that is
 * until so much was written behind the last one (0.1 s or so), the depth alone counts.
 */
static const uint64_t WRITE_BYTES_BESIDE_READS = 4 << 20, BESIDE_READS_BYTES = 512 << 20;

static struct disk_op *op_of(struct disk_request *request)
{
    return (struct disk_op *)((char *)request - offsetof(struct disk_op, request));
}

static uint32_t whole_pages(uint32_t bytes)
{
    return (bytes + DISK_ALIGN - 1) / DISK_ALIGN * DISK_ALIGN;
}

uint32_t lane_for_reads(uint32_t queue_depth)
{
    return queue_depth / 4 ? queue_depth / 4 : 1;
}

static char *buffer_of(const struct disk_lane *lane, const struct disk_op *op)
{
    return lane->buffers + op->request.buffer_number * lane->buffer_bytes;
}

static void give_back(struct disk_lane *lane, struct disk_op *op)
{
    lane->free_buffers[lane->num_free++] = op->request.buffer_number; /* L2 */
}

static void prepare(struct disk_lane *lane, struct disk_op *op, bool is_write, uint32_t buffer,
                    void (*end)(void *owner, struct disk_request *request, int status))
{
    op->request = (struct disk_request){
        .io = {.kind = DISK_IO_DATA,
               .is_write = is_write,
               .offset = op->offset,
               .bytes = whole_pages(op->bytes)},
        .file = DISK_FILE_DATA,
        .buffer_number = buffer,
        .end = end,
        .owner = lane,
    };
    op->request.io.buffer = buffer_of(lane, op);
}

/* --- reads --- */

static void read_ended(void *owner, struct disk_request *request, int status)
{
    struct disk_lane *lane = owner;
    struct disk_op *op = op_of(request);

    lane->num_blocks--;
    if (status == 0) {
        disk_list_push(&lane->to_verify, &op->item);
        return;
    }
    give_back(lane, op);
    lane_end(lane, op, status);
}

void blocks_start_reads(struct disk_lane *lane)
{
    uint32_t depth = lane->options->queue_depth + lane_for_reads(lane->options->queue_depth);

    while (lane->reads.head && lane->num_free > 0 && lane->num_blocks < depth) {
        struct disk_op *op = disk_op_of(disk_list_pop(&lane->reads));
        if (!lane_enter(op, PHASE_QUEUED, PHASE_KERNEL)) {
            lane_end(lane, op, 0);
            continue;
        }
        prepare(lane, op, false, lane->free_buffers[--lane->num_free], read_ended);
        lane->num_blocks++;
        lane->beside_reads_bytes = BESIDE_READS_BYTES;
        lane_request(lane, &op->request);
    }
}

static uint32_t verify_one(struct disk_lane *lane)
{
    struct disk_op *op = disk_op_of(disk_list_pop(&lane->to_verify));
    const char *buffer = buffer_of(lane, op);
    uint32_t bytes = op->bytes; /* the operation is the owner's once it is ended */
    int status = -EBADMSG;

    if (!lane_enter(op, PHASE_KERNEL, PHASE_BUSY)) { /* L1 */
        give_back(lane, op);
        lane_end(lane, op, 0);
        return 0;
    }
    if (lane->hashes->hash(buffer, op->bytes, op->record_hash) == op->data_hash) {
        memcpy(op->memory, buffer, op->bytes);
        status = 0;
    }
    give_back(lane, op);
    lane_end(lane, op, status);
    return bytes;
}

/* --- writes --- */

static void write_ended(void *owner, struct disk_request *request, int status)
{
    struct disk_lane *lane = owner;
    struct disk_op *op = op_of(request);

    lane->num_blocks--;
    lane->write_bytes -= whole_pages(op->bytes);
    give_back(lane, op);
    if (status)
        lane_end(lane, op, status);
    else
        headers_add(lane, op);
}

/* Room for one more write: a read waits for all of these. */
static bool has_room(const struct disk_lane *lane)
{
    return lane->num_blocks < lane->options->queue_depth &&
           (lane->beside_reads_bytes == 0 || lane->write_bytes < WRITE_BYTES_BESIDE_READS);
}

/* What is copied already goes to the kernel in the moment that it has room. */
void blocks_start_writes(struct disk_lane *lane)
{
    while (lane->copied.head && has_room(lane)) {
        struct disk_op *op = disk_op_of(disk_list_pop(&lane->copied));
        if (!lane_enter(op, PHASE_QUEUED, PHASE_KERNEL)) {
            give_back(lane, op);
            lane_end(lane, op, 0);
            continue;
        }
        lane->num_blocks++;
        lane->write_bytes += op->request.io.bytes;
        lane->beside_reads_bytes -= lane->beside_reads_bytes < op->request.io.bytes
                                        ? lane->beside_reads_bytes
                                        : op->request.io.bytes;
        lane_request(lane, &op->request);
    }
}

static bool can_copy(const struct disk_lane *lane)
{
    return lane->writes.head && lane->num_free > lane_for_reads(lane->options->queue_depth);
}

static uint32_t copy_one(struct disk_lane *lane)
{
    struct disk_op *op = disk_op_of(disk_list_pop(&lane->writes));

    if (!lane_enter(op, PHASE_QUEUED, PHASE_BUSY)) {
        lane_end(lane, op, 0);
        return 0;
    }
    prepare(lane, op, true, lane->free_buffers[--lane->num_free], write_ended);
    char *buffer = op->request.io.buffer;
    op->data_hash = lane->hashes->copy(buffer, op->memory, op->bytes, op->record_hash);
    memset(buffer + op->bytes, 0, op->request.io.bytes - op->bytes);
    op->header.data_hash = op->data_hash;
    format_header_seal(&op->header);
    (void)lane_enter(op, PHASE_BUSY, PHASE_QUEUED); /* L1: from here on the memory is free */
    disk_list_push(&lane->copied, &op->item);
    return op->bytes;
}

bool blocks_have_work(const struct disk_lane *lane)
{
    return lane->to_verify.head || can_copy(lane);
}

void blocks_work(struct disk_lane *lane)
{
    uint32_t bytes = 0;

    while (bytes < SLICE_BYTES && blocks_have_work(lane))
        bytes += lane->to_verify.head ? verify_one(lane) : copy_one(lane);
}
