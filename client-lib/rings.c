/*
 * client-lib/rings.c - step verbs through shared memory, as requests and results.
 *
 * A step's rows have to lie in staging too: they go to the corner, which one step has at a time,
 * until its completion was seen. (A caller who gave up waiting has not got it back: the daemon may
 * still read.)
 */
#include <errno.h>
#include <string.h>

#include "client-lib/client.h"

/* clang-format off */
static const uint32_t ring_verbs[KVPOOL_NUM_VERBS] = {
    [KVPOOL_STEP]     = RING_STEP,
    [KVPOOL_ATTEND]   = RING_ATTEND,
    [KVPOOL_END_STEP] = RING_END_STEP,
    [KVPOOL_PUBLISH]  = RING_PUBLISH,
    [KVPOOL_TRUNCATE] = RING_TRUNCATE,
    [KVPOOL_RELEASE]  = RING_RELEASE,
    [KVPOOL_FORK]     = RING_FORK,
};
/* clang-format on */

void ring_begin(struct kvpool *client)
{
    client->corner_id = 0;
}

static bool has_outstanding(const struct kvpool *client)
{
    return client->staging && kvpool_ring_outstanding(client->staging) > 0;
}

static uint64_t corner_bytes(const struct kvpool_request *request)
{
    uint64_t num_bytes = request->num_rows * sizeof(struct ring_row);

    for (uint32_t i = 0; i < request->num_rows; i++)
        num_bytes += request->rows[i].num_tokens * sizeof(uint32_t);
    return num_bytes;
}

bool ring_can(const struct kvpool *client, const struct kvpool_request *request)
{
    if (!client->staging || request->verb <= 0 || request->verb >= KVPOOL_NUM_VERBS ||
        ring_verbs[request->verb] == 0 || request->tables)
        return false;
    if (request->verb != KVPOOL_STEP)
        return true;
    return client->has_corner && client->corner_id == 0 && request->rows && request->num_rows > 0 &&
           request->num_rows <= WIRE_MAX_ROWS && corner_bytes(request) <= CLIENT_CORNER_BYTES;
}

/* The corner is 64-aligned, and rows are 24 bytes: tokens behind them are aligned too. */
static uint64_t rows_write(struct kvpool *client, const struct kvpool_request *request)
{
    uint64_t at = client->data_bytes, tokens_at = at + request->num_rows * sizeof(struct ring_row);

    for (uint32_t i = 0; i < request->num_rows; i++) {
        const struct kvpool_row *row = &request->rows[i];
        struct ring_row entry = {row->sequence, tokens_at, row->num_tokens, 0};
        memcpy(client->data + at + i * sizeof(entry), &entry, sizeof(entry));
        memcpy(client->data + tokens_at, row->tokens, row->num_tokens * sizeof(uint32_t));
        tokens_at += row->num_tokens * sizeof(uint32_t);
    }
    return at;
}

static void entry_fill(struct kvpool *client, const struct kvpool_request *request,
                       struct ring_submission *entry)
{
    const struct kvpool_attend *attend = request->attend;

    entry->verb = ring_verbs[request->verb];
    switch (request->verb) {
    case KVPOOL_STEP:
        entry->value = request->num_rows;
        entry->rows_offset = rows_write(client, request);
        client->corner_id = entry->id;
        break;
    case KVPOOL_ATTEND:
        entry->object = attend->step;
        entry->flags =
            (attend->want_lse ? RING_WANT_LSE : 0) | (attend->has_sinks ? RING_HAS_SINKS : 0);
        entry->layer = attend->layer;
        entry->dtype = attend->dtype;
        entry->q_offset = attend->q_offset;
        entry->k_offset = attend->k_offset;
        entry->v_offset = attend->v_offset;
        entry->out_offset = attend->out_offset;
        entry->lse_offset = attend->lse_offset;
        entry->sinks_offset = attend->sinks_offset;
        entry->scale = attend->scale;
        entry->soft_cap = attend->soft_cap;
        break;
    case KVPOOL_END_STEP:
        entry->object = request->step;
        entry->flags = request->abandon ? RING_ABANDON : 0;
        break;
    default:
        entry->object = request->sequence;
        entry->value = request->verb == KVPOOL_FORK ? request->child : request->length;
    }
}

int ring_submit(struct kvpool *client, const struct kvpool_request *request, uint64_t id)
{
    if (request->verb == KVPOOL_STEP && client->corner_id != 0)
        return -EAGAIN;
    if (!ring_can(client, request) || (request->verb == KVPOOL_ATTEND && !request->attend))
        return -EINVAL;
    for (uint32_t i = 0; request->verb == KVPOOL_STEP && i < request->num_rows; i++)
        if (!request->rows[i].tokens)
            return -EINVAL;
    if (kvpool_ring_outstanding(client->staging) >= RING_ENTRIES)
        return -EAGAIN;

    struct ring_submission entry = {.id = id};
    entry_fill(client, request, &entry);
    return kvpool_ring_submit(client->staging, client->daemon_eventfd, &entry);
}

static void completion_take(struct kvpool *client, const struct ring_completion *completion)
{
    if (completion->id == client->corner_id)
        client->corner_id = 0;

    struct pending *pending = pending_find(client, completion->id);
    if (!pending || !pending->via_ring)
        return;
    pending->result.step = completion->object;
    pending->result.num_rows = completion->value;
    uint32_t status = completion->status < INT32_MAX ? completion->status : STATUS_FAILED;
    pending_resolve(client, pending, (int)status, NULL);
}

int ring_receive(struct kvpool *client)
{
    struct ring_completion entry;
    int err, num = 0;

    if (!has_outstanding(client))
        return 0;
    for (; (err = kvpool_ring_receive(client->staging, &entry)) > 0; num++)
        completion_take(client, &entry);
    return err < 0 ? err : num;
}

void ring_spin(struct kvpool *client)
{
    if (has_outstanding(client))
        (void)kvpool_ring_spin(client->staging, client->options.spin_us);
}

bool ring_arm(struct kvpool *client)
{
    return !has_outstanding(client) || kvpool_ring_arm(client->staging);
}

void ring_disarm(struct kvpool *client)
{
    if (client->staging)
        kvpool_ring_disarm(client->staging);
}
