/* tests/pool/model_setup.c - the naive model's pool, tenants, domains and models. */
#include "tests/pool/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void run_pool(struct naive *naive, const struct script_command *command, struct text *answer)
{
    if (naive->has_pool) {
        (void)answer_error(answer, "there is a pool already");
        return;
    }
    naive->has_pool = true;
    naive->num_granules = command->blocks;
    naive->slots.uncommitted = command->blocks;
    naive->block_tokens = command->block_tokens;
    naive->watermark = command->watermark;
    text_add(answer, "ok");
}

/* One arena for each payer, model and group. */
static void add_arenas(struct naive *naive, uint32_t payer, uint32_t model)
{
    struct slots *slots = &naive->slots;

    for (uint32_t group = 0; group < naive->models[model].num_groups; group++) {
        slots->arenas = grow(slots->arenas, &slots->arenas_capacity, slots->num_arenas + 1,
                             sizeof(*slots->arenas));
        slots->arenas[slots->num_arenas++] =
            (struct arena){.payer = payer,
                           .model = model,
                           .group = group,
                           .per_granule = naive->models[model].groups[group].per_granule};
    }
}

/* "a guarantee above its limit, or guarantees that add up to more than the budget" */
static bool has_valid_guarantee(const struct naive *naive, const struct script_command *command)
{
    uint64_t left = naive->num_granules;

    for (size_t i = 0; i < naive->num_payers; i++)
        left -= naive->payers[i].guarantee;
    return command->guarantee <= command->limit && command->guarantee <= left;
}

static void add_payer(struct naive *naive, const struct script_command *command,
                      struct text *answer)
{
    if (find_payer(naive, command->name) != NO_INDEX) {
        (void)refuse(answer, EXISTS);
        return;
    }
    if (!has_valid_guarantee(naive, command)) {
        (void)refuse(answer, INVALID);
        return;
    }
    naive->payers =
        grow(naive->payers, &naive->payers_capacity, naive->num_payers + 1, sizeof(*naive->payers));
    struct payer *payer = &naive->payers[naive->num_payers++];
    *payer = (struct payer){.is_domain = command->verb == VERB_DOMAIN,
                            .guarantee = command->guarantee,
                            .limit = command->limit,
                            .weight = command->weight};
    strcpy(payer->name, command->name);
    if (payer->is_domain) {
        payer->num_readers = command->num_readers;
        payer->readers = calloc(command->num_readers, sizeof(*payer->readers));
        assert(payer->readers);
        for (size_t i = 0; i < command->num_readers; i++)
            payer->readers[i] = find_payer(naive, command->readers[i]);
    }
    for (size_t model = 0; model < naive->num_models; model++)
        add_arenas(naive, (uint32_t)naive->num_payers - 1, (uint32_t)model);
    text_add(answer, "ok");
}

void run_tenant(struct naive *naive, const struct script_command *command, struct text *answer)
{
    add_payer(naive, command, answer);
}

void run_domain(struct naive *naive, const struct script_command *command, struct text *answer)
{
    /* "readers are tenants" */
    for (size_t i = 0; i < command->num_readers; i++) {
        uint32_t reader = find_payer(naive, command->readers[i]);
        if (reader == NO_INDEX || naive->payers[reader].is_domain) {
            (void)refuse(answer, NOT_FOUND);
            return;
        }
    }
    add_payer(naive, command, answer);
}

void run_model(struct naive *naive, const struct script_command *command, struct text *answer)
{
    for (size_t i = 0; i < naive->num_models; i++) {
        if (strcmp(naive->models[i].name, command->name) == 0) {
            (void)refuse(answer, EXISTS);
            return;
        }
    }
    naive->models =
        grow(naive->models, &naive->models_capacity, naive->num_models + 1, sizeof(*naive->models));
    struct kv_model *model = &naive->models[naive->num_models++];
    *model = (struct kv_model){.num_groups = command->num_groups};
    strcpy(model->name, command->name);
    memcpy(model->groups, command->groups, sizeof(model->groups));
    for (size_t payer = 0; payer < naive->num_payers; payer++)
        add_arenas(naive, (uint32_t)payer, (uint32_t)naive->num_models - 1);
    text_add(answer, "ok");
}
