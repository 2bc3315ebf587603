/*
 * daemon/verbs_data.c - Write and Read: K and V of whole blocks, in and out of a sequence.
 *
 * Through staging the owner thread copies in slices of COPY_SLICE_BYTES, one a pass of the loop,
 * and asks the pool before each whether the blocks are still the sequence's: so nothing has to be
 * kept from reuse, and nobody waits long. In a data frame of the message itself, for callers
 * without staging, only little is taken, at once.
 */
#include "daemon/server.h"
#include "daemon/verbs.h"

enum { COPY_SLICE_BYTES = 1 << 20 };

/* The blocks that the copy is about: places in the scratch, and their arena. */
struct blocks {
    const struct model_group *group;
    const struct pool_place *places;
    uint32_t own_arena, shared_arena, count;
};

/* Whether the blocks may be read, or written, now; and where they are. */
static int blocks_find(struct server *server, const struct waiting *waiting,
                       struct blocks *out_blocks)
{
    struct scratch *scratch = &server->scratch;
    const struct session *session = &server->sessions.sessions[waiting->session];
    const struct pool_name name = {session->pool, waiting->sequence};
    struct pool_sequence_description described;
    uint32_t first = waiting->copy.first, count = waiting->copy.count, length;
    int answer = pool_describe(server->pool, name, &described);

    if (!answer && waiting->copy.is_write)
        answer = pool_may_write(server->pool, name, waiting->copy.group, first, count);
    if (!answer)
        answer = pool_table(server->pool, name, waiting->copy.group, scratch->places,
                            scratch->max_places, &length);
    if (answer)
        return status_of_pool(answer);
    const struct model *model = &server->models.models[described.model];
    if (length > scratch->max_places || first > length || count > length - first)
        return STATUS_INVALID;
    if (!waiting->copy.is_write && /* of what nobody filled there is nothing to read */
        ((uint64_t)first + count) * model->block_tokens >
            described.num_complete + model->block_tokens - 1)
        return STATUS_INVALID;
    *out_blocks = (struct blocks){.group = &model->groups[waiting->copy.group],
                                  .places = scratch->places + first,
                                  .own_arena = NO_INDEX,
                                  .shared_arena = NO_INDEX,
                                  .count = count};
    (void)pool_arena_find(server->pool, described.domain, described.model, waiting->copy.group,
                          &out_blocks->own_arena);
    if (described.shared != POOL_NONE)
        (void)pool_arena_find(server->pool, described.shared, described.model, waiting->copy.group,
                              &out_blocks->shared_arena);
    return STATUS_OK;
}

/* Copies up to @max bytes from where the last slice ended. */
static int slice_copy(struct server *server, struct waiting *waiting, const struct blocks *blocks,
                      uint8_t *data, uint64_t max)
{
    uint64_t block_bytes = blocks->group->block_bytes;

    while (max > 0 && waiting->copy.done_blocks < blocks->count) {
        const struct pool_place *place = &blocks->places[waiting->copy.done_blocks];
        uint32_t arena = place->is_shared ? blocks->shared_arena : blocks->own_arena;
        uint8_t *block = effects_address(server, arena, place->slot);
        uint64_t left = block_bytes - waiting->copy.done_bytes;
        uint64_t count = left < max ? left : max;
        uint8_t *outside =
            data + waiting->copy.done_blocks * block_bytes + waiting->copy.done_bytes;
        if (!block && gpu_arena_is_damaged(server->device, arena))
            return STATUS_FAILED;
        if (!block)
            return place->slot == 0 ? STATUS_INVALID : STATUS_BUSY; /* no window, no memory yet */
        block += waiting->copy.done_bytes;
        if (waiting->copy.is_write)
            memcpy(block, outside, count);
        else
            memcpy(outside, block, count);
        if (gpu_arena_is_damaged(server->device, arena))
            return STATUS_FAILED;
        max -= count;
        waiting->copy.done_bytes += count;
        if (waiting->copy.done_bytes == block_bytes) {
            waiting->copy.done_blocks++;
            waiting->copy.done_bytes = 0;
        }
    }
    return STATUS_OK;
}

static uint8_t *staging_at(struct server *server, const struct waiting *waiting)
{
    return server->sessions.sessions[waiting->session].ring.data + waiting->copy.offset;
}

bool data_run(struct server *server)
{
    struct waitings *waitings = &server->waitings;
    uint32_t next;

    for (uint32_t at = waitings->head; at != NO_INDEX && waitings->num_copies > 0; at = next) {
        struct waiting *waiting = &waitings->records[at];
        struct blocks blocks;
        next = waiting->next;
        if (waiting->what != WAITING_COPY)
            continue;
        int status = blocks_find(server, waiting, &blocks);
        if (!status)
            status =
                slice_copy(server, waiting, &blocks, staging_at(server, waiting), COPY_SLICE_BYTES);
        if (status || waiting->copy.done_blocks == waiting->copy.count)
            dispatch_result(server, waiting, status);
    }
    return waitings->num_copies > 0;
}

/* ---- verbs ---------------------------------------------------------------------------------- */

static int frame_copy(struct call *call, const struct blocks *blocks, uint64_t num_bytes,
                      wire_reply *reply)
{
    struct server *server = call->server;
    struct frames *frames = call->frames;
    uint8_t *data;

    if (num_bytes > WIRE_MAX_DATA_BYTES)
        return refuse(reply, STATUS_UNSUPPORTED, "more than 4 MiB go through staging");
    if (call->waiting->copy.is_write) {
        if (!frames || frames->next == frames->count ||
            frames->frames[frames->next].num_bytes != num_bytes)
            return refuse(reply, STATUS_MALFORMED, "there is no data frame of this size");
        data = (uint8_t *)(uintptr_t)frames->frames[frames->next++].bytes;
    } else {
        data = router_frame(server, call->origin, num_bytes);
        if (!data)
            return refuse(reply, STATUS_OVERLOADED, "too many replies wait to be read");
    }
    int status = slice_copy(server, call->waiting, blocks, data, num_bytes);
    if (status && !call->waiting->copy.is_write)
        router_frame_drop(server);
    return status;
}

static int copy_begin(struct call *call, wire_reply *reply)
{
    struct server *server = call->server;
    struct waiting *waiting = call->waiting;
    struct sequence_record *record;
    struct blocks blocks;
    int status = sequence_get(call, waiting->sequence, &record);

    if (!status)
        status = blocks_find(server, waiting, &blocks);
    if (status)
        return status;
    uint64_t num_bytes = blocks.group->block_bytes * waiting->copy.count;
    if (waiting->copy.count == 0)
        return refuse(reply, STATUS_INVALID, "no blocks");
    if (!waiting->copy.in_staging)
        return frame_copy(call, &blocks, num_bytes, reply);
    if (!ring_span_fits(waiting->copy.offset, num_bytes, call->session->ring.data_bytes))
        return refuse(reply, STATUS_INVALID, "the data lies outside of staging");
    status = slice_copy(server, waiting, &blocks, staging_at(server, waiting), COPY_SLICE_BYTES);
    if (status || waiting->copy.done_blocks == waiting->copy.count)
        return status;
    server->has_more = true;
    return waiting_begin(server, waiting, WAITING_COPY);
}

int handle_write(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Write *wire = call->message;

    call->waiting->sequence = wire->sequence;
    call->waiting->copy.is_write = true;
    call->waiting->copy.in_staging = wire->in_staging;
    call->waiting->copy.group = wire->group;
    call->waiting->copy.first = wire->first_block;
    call->waiting->copy.count = wire->num_blocks;
    call->waiting->copy.offset = wire->offset;
    return copy_begin(call, reply);
}

int handle_read(struct call *call, wire_reply *reply)
{
    const Kvpool__Wire__Read *wire = call->message;

    call->waiting->sequence = wire->sequence;
    call->waiting->copy.in_staging = wire->in_staging;
    call->waiting->copy.group = wire->group;
    call->waiting->copy.first = wire->first_block;
    call->waiting->copy.count = wire->num_blocks;
    call->waiting->copy.offset = wire->offset;
    return copy_begin(call, reply);
}

int finish_data(struct server *server, struct waiting *waiting, wire_reply *reply)
{
    struct pool_sequence_description described;
    const struct session *session = &server->sessions.sessions[waiting->session];
    Kvpool__Wire__DataResult *data = &server->scratch.data;

    kvpool__wire__data_result__init(data);
    if (pool_describe(server->pool, (struct pool_name){session->pool, waiting->sequence},
                      &described))
        return STATUS_FAILED;
    data->num_bytes =
        server->models.models[described.model].groups[waiting->copy.group].block_bytes *
        waiting->copy.count;
    reply->result_case = KVPOOL__WIRE__REPLY__RESULT_DATA;
    reply->data = data;
    return STATUS_OK;
}
