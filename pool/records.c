/* pool/records.c - free records, and the sink. */
#include "pool/internal.h"

uint32_t record_take(struct record_pool *records, struct links links)
{
    uint32_t id = records->first_free;

    if (id != NONE)
        records->first_free = link_at(links, id)->next;
    else if (records->num_touched < records->capacity)
        id = records->num_touched++; /* memory is touched only when it is first used */
    else
        return NONE;
    records->num_used++;
    return id;
}

void record_give(struct record_pool *records, struct links links, uint32_t id)
{
    link_at(links, id)->next = records->first_free;
    records->first_free = id;
    records->num_used--;
}

void emit(struct pool *pool, const struct pool_effect *effect)
{
    pool->config.sink.emit(pool->config.sink.context, effect);
}

void emit_reply(struct pool *pool, uint64_t cookie, int answer)
{
    emit(pool,
         &(struct pool_effect){.kind = POOL_EFFECT_REPLY, .cookie = cookie, .answer = answer});
}
