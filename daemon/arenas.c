/* daemon/arenas.c - the device's and the host's arenas alike. */
#include "daemon/arenas.h"

#include "daemon/server.h"

#include <errno.h>

void arena_options(struct server *server, const struct pool_arena_description *description,
                   uint64_t budget_bytes, struct gpu_arena_options *out_options)
{
    const struct model *model = models_of_pool(&server->models, description->model);
    const struct model_group *group = &model->groups[description->group];
    uint64_t pages = budget_bytes / server->config->page_bytes;

    *out_options = (struct gpu_arena_options){
        .granule = group->granule,
        .block_bytes = group->block_bytes,
        .max_granules = (uint32_t)(pages / group->granule.pages),
        .is_shared = tenants_is_domain(&server->tenants, description->domain)};
}

static bool is_host(const struct server *server, uint32_t number)
{
    struct pool_arena_description description;

    return pool_arena_describe(server->pool, number, &description) == 0 &&
           description.tier == POOL_TIER_HOST;
}

bool arena_is_had(struct server *server, uint32_t number)
{
    return is_host(server, number) ? lower_arena(server, number) != NULL
                                   : effects_open_arena(server, number) == 0;
}

void arena_was_adopted(struct server *server, uint32_t number)
{
    if (is_host(server, number))
        server->tiers.arenas[number].is_open = true;
    else
        server->effects.arenas[number].is_open = true;
}

/* What is known of a granule, in an arena that may be opened later. NULL: no memory for it. */
static bool state_find(struct server *server, uint32_t number, uint32_t granule,
                       uint8_t **out_memory, bool **out_is_wanted)
{
    if (is_host(server, number)) {
        if (lower_prepare(server, number))
            return false;
        struct lower_granule *state = &server->tiers.arenas[number].granules[granule];
        *out_memory = &state->memory;
        *out_is_wanted = &state->is_wanted;
        return true;
    }
    if (effects_prepare_arena(server, number))
        return false;
    struct granule_state *state = &server->effects.arenas[number].granules[granule];
    *out_memory = &state->memory;
    *out_is_wanted = &state->is_wanted;
    return true;
}

int arena_granule_check(struct server *server, uint32_t number, uint32_t granule)
{
    uint8_t *memory;
    bool *is_wanted;

    if (!state_find(server, number, granule, &memory, &is_wanted))
        return -ENOMEM;
    return *memory == MEMORY_NONE && !*is_wanted ? 0 : -EEXIST;
}

void arena_granule_set(struct server *server, uint32_t number, uint32_t granule,
                       enum granule_memory memory)
{
    uint8_t *has;
    bool *is_wanted;

    if (!state_find(server, number, granule, &has, &is_wanted))
        return;
    *has = (uint8_t)memory;
    *is_wanted = true;
}
