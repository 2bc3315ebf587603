/* client-lib/replies.c - one reply to the result of the request that waited for it. */
#include <errno.h>
#include <string.h>

#include "client-lib/client.h"

static void tables_take(struct pending *pending, const Kvpool__Wire__TableResult *result)
{
    for (uint32_t i = 0; i < pending->num_tables; i++) {
        struct kvpool_table *table = &pending->tables[i];
        table->num = 0;
        table->num_shared = 0;
        if (i >= result->n_tables)
            continue;
        const Kvpool__Wire__Table *wire = result->tables[i];
        size_t num = wire->n_slots < table->max ? wire->n_slots : table->max;
        table->num = (uint32_t)wire->n_slots;
        table->num_shared = wire->num_shared;
        if (table->slots && num > 0)
            memcpy(table->slots, wire->slots, num * sizeof(*table->slots));
        if (num > wire->n_generations)
            num = wire->n_generations;
        if (table->generations && num > 0)
            memcpy(table->generations, wire->generations, num * sizeof(*table->generations));
    }
}

static int json_take(struct pending *pending, const char *json)
{
    size_t num_bytes = strlen(json);

    pending->result.num_bytes = num_bytes;
    if (!pending->json)
        return 0;
    if (num_bytes >= pending->json_max)
        return -EMSGSIZE;
    memcpy(pending->json, json, num_bytes + 1);
    return 0;
}

static int frame_take(struct pending *pending, zmq_msg_t *frame)
{
    size_t num_bytes = zmq_msg_size(frame);

    pending->result.num_bytes = num_bytes;
    if (!pending->data)
        return 0;
    if (num_bytes > pending->data_bytes)
        return -EMSGSIZE;
    memcpy(pending->data, zmq_msg_data(frame), num_bytes);
    return 0;
}

static void shape_take(struct pending *pending, const Kvpool__Wire__ModelResult *model)
{
    struct kvpool_model_shape *shape = pending->out_shape;

    *pending->out_model = model->model;
    if (!shape)
        return;
    *shape = (struct kvpool_model_shape){.num_groups = (uint32_t)model->n_block_bytes};
    for (size_t i = 0; i < model->n_block_bytes; i++)
        shape->block_bytes[i] = model->block_bytes[i];
    for (size_t i = 0; i < model->n_stride_bytes; i++)
        shape->stride_bytes[i] = model->stride_bytes[i];
    for (size_t i = 0; i < model->n_slots_per_granule; i++)
        shape->slots_per_granule[i] = model->slots_per_granule[i];
}

/* What came with status OK; 0, or -EMSGSIZE. */
static int result_take(struct pending *pending, const Kvpool__Wire__Reply *reply, zmq_msg_t *frame)
{
    struct kvpool_result *result = &pending->result;

    switch (reply->result_case) {
    case KVPOOL__WIRE__REPLY__RESULT_TABLE:
        result->matched = reply->table->matched;
        result->arriving = reply->table->arriving;
        result->length = reply->table->length;
        result->below = reply->table->below;
        tables_take(pending, reply->table);
        return 0;
    case KVPOOL__WIRE__REPLY__RESULT_MATCH:
        result->matched = reply->match->matched;
        result->arriving = reply->match->arriving;
        result->below = reply->match->below;
        result->present = reply->match->present;
        result->coming = reply->match->coming;
        return 0;
    case KVPOOL__WIRE__REPLY__RESULT_STEP:
        result->step = reply->step->step;
        result->num_rows = reply->step->num_rows;
        return 0;
    case KVPOOL__WIRE__REPLY__RESULT_DATA:
        result->num_bytes = reply->data->num_bytes;
        return frame ? frame_take(pending, frame) : 0;
    case KVPOOL__WIRE__REPLY__RESULT_STATS:
        return json_take(pending, reply->stats->json);
    case KVPOOL__WIRE__REPLY__RESULT_LIST:
        return json_take(pending, reply->list->json);
    case KVPOOL__WIRE__REPLY__RESULT_MODEL:
        if (pending->out_model)
            shape_take(pending, reply->model);
        return 0;
    case KVPOOL__WIRE__REPLY__RESULT_ARENA:
        if (pending->out_arena)
            *pending->out_arena = (struct arena_packet){.arena = reply->arena->arena,
                                                        .stride_bytes = reply->arena->stride_bytes,
                                                        .max_bytes = reply->arena->max_bytes,
                                                        .is_writable = reply->arena->is_writable};
        return 0;
    default: /* nothing, or something of a newer minor */
        return 0;
    }
}

void reply_take(struct kvpool *client, struct pending *pending, const Kvpool__Wire__Reply *reply,
                zmq_msg_t *frame)
{
    int status = (int)(reply->status < INT32_MAX ? reply->status : STATUS_FAILED);
    const char *message = reply->message && reply->message[0] ? reply->message : NULL;

    if (status == STATUS_OK)
        status = result_take(pending, reply, frame);
    if (status == STATUS_STALE && !client->is_operator && session_read(client)) {
        client->is_ended = true; /* not what it named is of before: the session is */
        status = STATUS_DISCONNECTED;
        message = NULL;
    }
    pending_resolve(client, pending, status, message);
}
