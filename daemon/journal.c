/* daemon/journal.c - a ring for each tenant. */
#include "daemon/journal.h"

#include "daemon/models.h"

#include <errno.h>
#include <stdlib.h>

int journal_init(struct journal *journal, uint32_t max_payers)
{
    journal->max_payers = max_payers;
    /* touched as far as tenants have events */
    journal->events = calloc((size_t)max_payers * JOURNAL_KEPT, sizeof(*journal->events));
    journal->counts = calloc(max_payers, sizeof(*journal->counts));
    return journal->events && journal->counts ? 0 : -ENOMEM;
}

void journal_finish(struct journal *journal)
{
    free(journal->events);
    free(journal->counts);
}

static struct journal_event *event_at(const struct journal *journal, pool_payer payer,
                                      uint64_t number)
{
    return &journal->events[(size_t)payer * JOURNAL_KEPT + number % JOURNAL_KEPT];
}

void journal_add(struct journal *journal, pool_payer payer, const struct journal_event *event)
{
    if (payer < journal->max_payers)
        *event_at(journal, payer, ++journal->counts[payer]) = *event;
}

static void event_json(const struct journal_event *event, const struct models *models,
                       struct text *out)
{
    text_printf(out, "{\"stored\":%s,\"key\":\"", event->is_stored ? "true" : "false");
    for (size_t i = 0; i < sizeof(event->key.bytes); i++)
        text_printf(out, "%02x", event->key.bytes[i]);
    text_add(out, "\",\"model\":");
    text_add_json(out, event->model < models->count ? models->models[event->model].name : "");
    text_printf(out, ",\"group\":%u}", event->group);
}

void journal_json(const struct journal *journal, pool_payer payer, uint64_t after,
                  const struct models *models, struct text *out)
{
    uint64_t newest = journal->counts[payer];
    uint64_t oldest = newest > JOURNAL_KEPT ? newest - JOURNAL_KEPT + 1 : 1;
    uint64_t first = after >= newest ? newest + 1 : after + 1 < oldest ? oldest : after + 1;
    uint64_t end = newest + 1 - first > JOURNAL_AT_ONCE ? first + JOURNAL_AT_ONCE : newest + 1;

    text_printf(out,
                "\"events\":{\"first\":%lu,\"last\":%lu,\"newest\":%lu,\"lost\":%s,\"blocks\":[",
                first, end - 1, newest, after > newest || after + 1 < first ? "true" : "false");
    for (uint64_t number = first; number < end; number++) {
        text_add(out, number > first ? "," : "");
        event_json(event_at(journal, payer, number), models, out);
    }
    text_add(out, "]}");
}
