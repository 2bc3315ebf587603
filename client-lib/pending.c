/*
 * client-lib/pending.c - the table of requests that are outstanding.
 *
 *  I1  num_waiting and num_resolved count the slots of each state; the rest is free.
 *  I2  A slot is resolved once, and freed only by whoever claims it: nothing else gives it back.
 *  I3  The id of a waiting slot has the slot's index in its low 8 bits, and was never used before.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client-lib/client.h"

int64_t client_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void client_say(char *out_message, const char *text)
{
    snprintf(out_message, KVPOOL_MAX_MESSAGE, "%s", text);
}

int pending_take(struct kvpool *client, uint32_t deadline_ms, struct pending **out_pending)
{
    if (client->num_waiting + client->num_resolved == CLIENT_NUM_PENDING)
        return -EAGAIN;

    struct pending *pending;
    do {
        client->next_index = (client->next_index + 1) % CLIENT_NUM_PENDING;
        pending = &client->pending[client->next_index];
    } while (pending->state != PENDING_FREE);

    *pending = (struct pending){
        .state = PENDING_WAITING,
        .id = ++client->next_serial << 9 | client->next_index,
        .expires_ms = client_now_ms() + deadline_ms + CLIENT_GRACE_MS,
    };
    client->num_waiting++;
    *out_pending = pending;
    return 0;
}

/* Back to free, from either state. */
void pending_release(struct kvpool *client, struct pending *pending)
{
    assert(pending->state != PENDING_FREE);
    if (pending->state == PENDING_WAITING)
        client->num_waiting--;
    else
        client->num_resolved--;
    pending->state = PENDING_FREE;
}

struct pending *pending_find(struct kvpool *client, uint64_t id)
{
    struct pending *pending = &client->pending[id % CLIENT_NUM_PENDING];
    return pending->state == PENDING_WAITING && pending->id == id ? pending : NULL;
}

void pending_resolve(struct kvpool *client, struct pending *pending, int status,
                     const char *message)
{
    assert(pending->state == PENDING_WAITING);
    pending->state = PENDING_RESOLVED;
    pending->result.ticket = pending->id;
    pending->result.status = status;
    client_say(pending->result.message, message ? message : kvpool_status_text(status));
    if (status == 0)
        pending->result.message[0] = '\0';
    client->num_waiting--;
    client->num_resolved++;
}

void pending_resolve_all(struct kvpool *client, bool messages_only, int status, const char *message)
{
    for (uint32_t i = 0; i < CLIENT_NUM_PENDING; i++) {
        struct pending *pending = &client->pending[i];
        if (pending->state == PENDING_WAITING && !(messages_only && pending->via_ring))
            pending_resolve(client, pending, status, message);
    }
}

void pending_expire(struct kvpool *client, int64_t now_ms)
{
    for (uint32_t i = 0; i < CLIENT_NUM_PENDING && client->num_waiting > 0; i++) {
        struct pending *pending = &client->pending[i];
        if (pending->state == PENDING_WAITING && pending->expires_ms <= now_ms)
            pending_resolve(client, pending, STATUS_TIMEOUT, "no answer in time");
    }
}

uint32_t kvpool_num_outstanding(const struct kvpool *client)
{
    return client->num_waiting + client->num_resolved;
}
