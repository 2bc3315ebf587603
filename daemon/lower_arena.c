/* daemon/lower_arena.c - arenas below the device: what they are, whose they are, and what is kept
 * beside their blocks. */
#include "daemon/lower.h"

#include "daemon/server.h"
#include "daemon/tier_host.h"

#include <errno.h>
#include <stdlib.h>

/* ---- what is configured --------------------------------------------------------------------- */

static uint64_t ahead_pages(uint64_t ahead_bytes, uint64_t pages, uint64_t page_bytes)
{
    uint64_t ahead = ahead_bytes > 0 ? ahead_bytes / page_bytes : pages / 16;

    return ahead > 0 ? ahead : 1;
}

static uint32_t num_tiers(const struct config *config)
{
    return 1 + (config->host_tier_bytes > 0) + (tier_disk_granules(config) > 0);
}

/* The pool counts arenas of all tiers in 16 bits. */
static uint32_t arenas_of_tier(const struct config *config)
{
    uint64_t most = (UINT16_MAX - 1) / num_tiers(config);

    return (uint32_t)(config->max_arenas < most ? config->max_arenas : most);
}

uint32_t lower_max_arenas(const struct config *config)
{
    return arenas_of_tier(config) * num_tiers(config);
}

void lower_configure(const struct config *config, struct pool_config *out_pool)
{
    uint64_t page = config->page_bytes, granules = tier_disk_granules(config);
    const uint64_t pages[POOL_NUM_TIERS] = {
        [POOL_TIER_HOST] = config->host_tier_bytes / page, [POOL_TIER_DISK] = granules};

    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        if (pages[tier] == 0)
            continue;
        out_pool->tiers[tier] =
            (struct pool_tier_config){.pages = pages[tier], .max_store_bytes = config->store_bytes};
        out_pool->ahead_pages[POOL_TIER_DEVICE] =
            ahead_pages(config->ahead_bytes, config->pool_bytes / page, page);
    }
    if (pages[POOL_TIER_HOST] > 0)
        out_pool->tiers[POOL_TIER_HOST].max_slots = (uint32_t)config->max_blocks;
    if (granules > 0) {
        out_pool->tiers[POOL_TIER_DISK].max_slots = (uint32_t)config->disk_max_blocks;
        out_pool->tiers[POOL_TIER_DISK].store_bytes_per_s = config->store_rate;
        if (pages[POOL_TIER_HOST] > 0)
            out_pool->ahead_pages[POOL_TIER_HOST] =
                ahead_pages(config->host_ahead_bytes, pages[POOL_TIER_HOST], page);
    }
    out_pool->max_arenas = arenas_of_tier(config);
    out_pool->store_when = (enum pool_store_when)config->store_when;
}

static uint64_t disk_stride(const struct config *config, uint64_t block_bytes)
{
    uint64_t stride = (block_bytes + DISK_ALIGN - 1) / DISK_ALIGN * DISK_ALIGN;

    return stride > config->disk_min_block_bytes ? stride : config->disk_min_block_bytes;
}

void lower_shape(const struct config *config, uint64_t block_bytes,
                 const struct gpu_granule *granule, struct pool_group *out_group)
{
    out_group->pages = granule->pages;
    out_group->slots = granule->slots;
    out_group->block_bytes = block_bytes;
    if (config->host_tier_bytes / config->page_bytes >= granule->pages)
        out_group->below[POOL_TIER_HOST] =
            (struct pool_granule_shape){.pages = granule->pages, .slots = granule->slots};
    if (tier_disk_granules(config) > 0 && block_bytes <= config->disk_max_block_bytes)
        out_group->below[POOL_TIER_DISK] = (struct pool_granule_shape){
            .pages = 1,
            .slots = (uint32_t)(config->disk_granule_bytes / disk_stride(config, block_bytes))};
}

/* ---- arenas --------------------------------------------------------------------------------- */

/* What says whose the blocks are, made of the domain's secret but telling nothing of it. */
int lower_place(struct server *server, pool_payer domain, pool_model model, uint32_t group,
                struct record_place *out_place)
{
    const struct key_fingerprint *fingerprint =
        &models_of_pool(&server->models, model)->fingerprint;
    static const char label[] = "\001place"; /* no adapter has such a name */
    const struct key_root_fields fields = {.domain_secret = server->tenants.payers[domain].secret,
                                           .model = fingerprint,
                                           .adapter_id = {label, sizeof(label) - 1}};
    struct key tag;
    int err = key_root(server->hasher, &fields, &tag);

    if (err)
        return err;
    memset(out_place, 0, sizeof(*out_place));
    memcpy(out_place->domain, tag.bytes, sizeof(out_place->domain));
    memcpy(out_place->model, fingerprint->bytes, sizeof(out_place->model));
    out_place->group = group;
    return 0;
}

int lower_prepare(struct server *server, uint32_t number)
{
    struct lower_arena *arena = &server->tiers.arenas[number];
    const struct config *config = server->config;
    struct pool_arena_description description;

    if (pool_arena_describe(server->pool, number, &description) ||
        description.tier == POOL_TIER_DEVICE)
        return -ENOENT;
    if (arena->granules)
        return 0;
    const struct model *model = models_of_pool(&server->models, description.model);
    const struct model_group *group = &model->groups[description.group];
    bool is_disk = description.tier == POOL_TIER_DISK;
    uint64_t pages =
        is_disk ? tier_disk_granules(config) : config->host_tier_bytes / config->page_bytes;

    arena->tier = (uint8_t)description.tier;
    arena->slots = description.slots_per_granule;
    arena->block_bytes = group->block_bytes;
    arena->stride_bytes =
        is_disk ? (uint32_t)disk_stride(config, group->block_bytes) : group->granule.stride_bytes;
    arena->domain = description.domain;
    arena->model = description.model;
    arena->max_granules = (uint32_t)(pages / description.pages_per_granule);
    int err = lower_place(server, description.domain, description.model, description.group,
                          &arena->place);
    if (err)
        return err;
    arena->granules = calloc(arena->max_granules, sizeof(*arena->granules));
    return arena->granules ? 0 : -ENOMEM;
}

struct lower_arena *lower_arena(struct server *server, uint32_t number)
{
    struct lower_arena *arena = &server->tiers.arenas[number];

    if (arena->is_open)
        return arena;
    if (lower_prepare(server, number) ||
        (arena->tier == POOL_TIER_HOST && tier_host_open(server, number)))
        return NULL;
    arena->is_open = true;
    return arena;
}

static bool domain_is_owner(struct server *server, pool_payer domain, pool_model model,
                            const struct record_place *place)
{
    struct record_place other;

    return !server->tenants.payers[domain].is_gone &&
           lower_place(server, domain, model, place->group, &other) == 0 &&
           memcmp(&other, place, sizeof(other)) == 0;
}

bool lower_find(struct server *server, const struct record_place *place, enum pool_tier tier,
                uint32_t *out_number)
{
    for (pool_model model = 0; model < server->models.count; model++) {
        if (memcmp(models_of_pool(&server->models, model)->fingerprint.bytes, place->model,
                   sizeof(place->model)) != 0)
            continue;
        for (pool_payer domain = 0; domain < server->tenants.count; domain++) {
            if (domain_is_owner(server, domain, model, place))
                return pool_arena_reserve(server->pool, domain, model) == 0 &&
                       pool_tier_arena_find(server->pool, domain, model, place->group, tier,
                                            out_number) == 0;
        }
    }
    return false;
}

enum pool_tier lower_tier_of(struct server *server, uint32_t number)
{
    struct tiers *tiers = &server->tiers;
    struct pool_arena_description description;

    if (tiers->tier_of[number] == 0) {
        if (pool_arena_describe(server->pool, number, &description))
            return POOL_TIER_DEVICE;
        tiers->tier_of[number] = (uint8_t)(1 + description.tier);
    }
    return (enum pool_tier)(tiers->tier_of[number] - 1);
}

/* ---- beside a block ------------------------------------------------------------------------- */

void lower_record(struct server *server, pool_payer domain, pool_model model,
                  const struct pool_effect *effect, struct record *out_record)
{
    assert(effect->key && effect->num_form <= RECORD_MAX_FORM);
    *out_record =
        (struct record){.generation = effect->generation,
                        .num_tokens = models_of_pool(&server->models, model)->block_tokens,
                        .epoch = state_epoch(server, domain, model),
                        .num_form = effect->num_form,
                        .has_parent = effect->parent != NULL,
                        .is_storable = !effect->is_unstorable,
                        .is_generated = effect->is_generated};
    memcpy(out_record->key, effect->key->bytes, sizeof(out_record->key));
    if (effect->parent)
        memcpy(out_record->parent, effect->parent->bytes, sizeof(out_record->parent));
    memcpy(out_record->form, effect->form, effect->num_form * sizeof(*effect->form));
}

void lower_restored(struct lower_restored *kept, uint32_t slot, struct pool_restored *out_restored)
{
    const struct record *record = &kept->record;

    *out_restored = (struct pool_restored){.slot = slot,
                                           .generation = record->generation,
                                           .parent = record->has_parent ? &kept->parent : NULL,
                                           .form = record->form,
                                           .num_form = record->num_form,
                                           .is_unstorable = !record->is_storable,
                                           .is_generated = record->is_generated};
    memcpy(out_restored->key.bytes, record->key, sizeof(out_restored->key.bytes));
    memcpy(kept->parent.bytes, record->parent, sizeof(kept->parent.bytes));
}
