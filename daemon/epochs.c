/* daemon/epochs.c - rules, few of them: looked through. */
#include "daemon/epochs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int epochs_init(struct epochs *epochs)
{
    *epochs = (struct epochs){.rules = calloc(EPOCH_MAX_RULES, sizeof(*epochs->rules))};
    return epochs->rules ? 0 : -ENOMEM;
}

void epochs_finish(struct epochs *epochs)
{
    free(epochs->rules);
}

void epochs_copy(struct epochs *to, const struct epochs *from)
{
    memcpy(to->rules, from->rules, from->count * sizeof(*from->rules));
    to->count = from->count;
    to->last = from->last;
}

/* Whether @rule, a name or all, is about @name. */
static bool names(const char *rule, const char *name)
{
    return rule[0] == '\0' || strcmp(rule, name) == 0;
}

uint64_t epochs_of(const struct epochs *epochs, const char *domain, const char *model)
{
    uint64_t epoch = 0;

    for (uint32_t at = 0; at < epochs->count; at++) {
        const struct epoch_rule *rule = &epochs->rules[at];
        if (rule->epoch > epoch && names(rule->domain, domain) && names(rule->model, model))
            epoch = rule->epoch;
    }
    return epoch;
}

bool epochs_add(struct epochs *epochs, const char *domain, const char *model, uint64_t epoch)
{
    if (epochs->count == EPOCH_MAX_RULES || strlen(domain) > CONFIG_MAX_NAME ||
        strlen(model) > MODEL_MAX_NAME)
        return false;
    struct epoch_rule *rule = &epochs->rules[epochs->count++];
    (void)snprintf(rule->domain, sizeof(rule->domain), "%s", domain);
    (void)snprintf(rule->model, sizeof(rule->model), "%s", model);
    rule->epoch = epoch;
    epochs->last = epoch > epochs->last ? epoch : epochs->last;
    return true;
}

void epochs_begin(struct epochs *epochs, const char *domain, const char *model, uint64_t at_least)
{
    uint64_t epoch = epochs->last + 1 > at_least ? epochs->last + 1 : at_least;
    uint32_t kept = 0;

    for (uint32_t at = 0; at < epochs->count; at++) {
        const struct epoch_rule *rule = &epochs->rules[at];
        if (!names(domain, rule->domain) || !names(model, rule->model))
            epochs->rules[kept++] = *rule;
    }
    epochs->count = kept;
    if (epochs_add(epochs, domain, model, epoch))
        return;
    epochs->count = 0;
    (void)epochs_add(epochs, "", "", epoch);
}
