/* offload/headers.c - headers are written in batches, after the data they speak of.
 *
 * One batch is under way at a time; what comes meanwhile is the next one. So two writes of one
 * header never race, and the more there are the more go into one I/O.
 */
#include "offload/lane.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void headers_add(struct disk_lane *lane, struct disk_op *op)
{
    disk_list_push(&lane->headers.waiting, &op->item);
}

static void add(struct disk_lane *lane, const struct disk_op *op, struct disk_slot slot)
{
    struct lane_headers *headers = &lane->headers;

    headers->headers[headers->num] = (struct lane_header){
        .offset = format_header_offset(lane->layout, slot), .order = headers->num, .op = op};
    headers->num++;
}

/* Moves waiting operations into the batch, in their order, as long as their headers fit. */
static void fill(struct disk_lane *lane)
{
    struct lane_headers *headers = &lane->headers;

    headers->num = 0;
    while (headers->waiting.head) {
        struct disk_op *op = disk_op_of(headers->waiting.head);
        uint32_t num = op->kind == OP_WRITE ? 1 : op->num_slots;
        if (headers->num + num > LANE_MAX_HEADERS)
            return;
        (void)disk_list_pop(&headers->waiting);
        if (op->kind == OP_WRITE) {
            /* A write that the owner has left is not there: its header stays as it was. */
            if (atomic_load_explicit(&op->phase, memory_order_acquire) == PHASE_LEFT) {
                lane_end(lane, op, 0);
                continue;
            }
            add(lane, op, op->slot);
        }
        for (uint32_t i = 0; op->kind == OP_ERASE && i < op->num_slots; i++)
            add(lane, op, op->slots[i]);
        disk_list_push(&headers->ops, &op->item);
    }
}

static int by_offset(const void *a, const void *b)
{
    const struct lane_header *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* In the order of the table, each slot once: the last word counts. */
static void sort(struct lane_headers *headers)
{
    uint32_t num = 0;

    qsort(headers->headers, headers->num, sizeof(headers->headers[0]), by_offset);
    for (uint32_t i = 0; i < headers->num; i++) {
        if (num > 0 && headers->headers[num - 1].offset == headers->headers[i].offset)
            num--;
        headers->headers[num++] = headers->headers[i];
    }
    headers->num = num;
}

static void end_batch(struct disk_lane *lane)
{
    struct lane_headers *headers = &lane->headers;
    struct disk_list ops = headers->ops;
    struct disk_item *item;

    for (uint32_t i = 0; i < headers->num; i++) {
        if (headers->headers[i].op->kind == OP_WRITE)
            ((struct disk_op *)headers->headers[i].op)->status = headers->headers[i].status;
    }
    headers->ops = (struct disk_list){0};
    while ((item = disk_list_pop(&ops)) != NULL)
        lane_end(lane, disk_op_of(item), disk_op_of(item)->status);
}

static void run_ended(void *owner, struct disk_request *request, int status)
{
    struct lane_run *run = (struct lane_run *)request;
    struct disk_lane *lane = owner;
    struct lane_headers *headers = &lane->headers;

    bool is_counted = false;
    for (uint32_t i = run->first; i < run->first + run->num; i++) {
        struct disk_op *op = (struct disk_op *)headers->headers[i].op;
        headers->headers[i].status = status;
        if (status && op->kind == OP_WRITE) {
            op->is_counted = is_counted;
            is_counted = true;
        }
    }
    if (--headers->num_running == 0)
        end_batch(lane);
}

static void start_run(struct disk_lane *lane, struct lane_run *run, uint32_t first, uint32_t num)
{
    struct lane_headers *headers = &lane->headers;

    run->first = first;
    run->num = num;
    run->request = (struct disk_request){
        .io = {.kind = DISK_IO_HEADER,
               .is_write = true,
               .offset = headers->headers[first].offset,
               .bytes = num * (uint32_t)sizeof(struct format_header),
               .buffer = &headers->images[first]},
        .file = DISK_FILE_TABLE,
        .buffer_number = DISK_NO_BUFFER,
        .end = run_ended,
        .owner = lane,
    };
    headers->num_running++;
    atomic_fetch_add_explicit(&lane->header_writes, 1, memory_order_relaxed);
    lane_request(lane, &run->request);
}

void headers_start(struct disk_lane *lane)
{
    struct lane_headers *headers = &lane->headers;
    uint32_t num_runs = 0;

    if (headers->num_running > 0 || !headers->waiting.head)
        return;
    fill(lane);
    sort(headers);
    for (uint32_t i = 0; i < headers->num; i++) {
        const struct disk_op *op = headers->headers[i].op;
        if (op->kind == OP_WRITE)
            headers->images[i] = op->header;
        else
            memset(&headers->images[i], 0, sizeof(headers->images[i]));
    }
    for (uint32_t first = 0, end; first < headers->num; first = end) {
        end = first + 1;
        while (end < headers->num &&
               headers->headers[end].offset ==
                   headers->headers[end - 1].offset + sizeof(struct format_header))
            end++;
        start_run(lane, &headers->runs[num_runs++], first, end - first);
    }
}
