/* tests/sim/sim_config.c - a pool, models and payers from the seed: small, so that all is scarce.
 */
#include "tests/sim/sim_tiers.h"

static uint32_t draw_from(struct sim *sim, const uint32_t *values, size_t count)
{
    return values[random_below(&sim->random, (uint32_t)count)];
}

static void sink_emit(void *context, const struct pool_effect *effect)
{
    struct sim *sim = context;

    sim_expect(sim, sim->num_effects < SIM_MAX_EFFECTS, "too many effects of one verb");
    struct sim_effect *kept = &sim->effects[sim->num_effects++];
    kept->effect = *effect;
    if (effect->key)
        kept->key = *effect->key;
    if (effect->parent)
        kept->parent = *effect->parent;
    const uint32_t *ids = effect->form ? effect->form : effect->tokens;
    uint32_t num_ids = effect->form ? effect->num_form : effect->num_tokens;
    sim_expect(sim, !ids || num_ids <= SIM_MAX_BLOCK_TOKENS, "%u ids with an effect", num_ids);
    for (uint32_t i = 0; ids && i < num_ids; i++)
        kept->ids[i] = ids[i];
}

/* Most caps are never reached; each is small in some runs. */
static uint32_t draw_cap(struct sim *sim, uint32_t low, uint32_t high)
{
    return random_chance(&sim->random, 16) ? low : high;
}

static void configure_devices(struct sim *sim)
{
    static const uint32_t pages[] = {8, 12, 16, 24, 40, 64};
    struct pool_config *config = &sim->config;
    uint32_t num_devices = 1 + random_below(&sim->random, 3);

    pool_config_init(config, draw_cap(sim, 40, sim->is_long ? 3000 : 800),
                     draw_from(sim, pages, ARRAY_SIZE(pages)));
    config->num_devices = num_devices;
    for (uint32_t i = 0; i < num_devices; i++) {
        uint32_t some = draw_from(sim, pages, ARRAY_SIZE(pages));
        config->devices[i].pages =
            i && random_chance(&sim->random, 2) ? some : config->devices[0].pages;
        config->devices[i].watermark =
            random_chance(&sim->random, 2) ? 0 : random_below(&sim->random, 4);
    }
    if (sim->is_long)
        config->devices[0].pages = config->devices[1].pages = config->devices[2].pages = 250;
}

static void configure_tier(struct sim *sim, enum pool_tier tier)
{
    static const uint32_t pages[] = {1, 4, 8, 16, 40, 64};
    struct pool_tier_config *config = &sim->config.tiers[tier];

    config->pages = sim->is_long ? 250 : draw_from(sim, pages, ARRAY_SIZE(pages));
    config->max_slots = draw_cap(sim, 10, (uint32_t)config->pages * 4);
    if (random_chance(&sim->random, 4))
        config->max_store_bytes = 50 + random_below(&sim->random, 400);
    if (random_chance(&sim->random, 4))
        config->store_bytes_per_s = 50 + random_below(&sim->random, 5000);
    sim->has_below = true;
}

static void configure_tiers(struct sim *sim)
{
    enum { HOST = 1U << POOL_TIER_HOST, DISK = 1U << POOL_TIER_DISK };
    static const uint32_t choices[] = {0,    0,           HOST,        DISK,
                                       DISK, HOST | DISK, HOST | DISK, HOST | DISK};
    struct pool_config *config = &sim->config;
    uint32_t choice = draw_from(sim, choices, ARRAY_SIZE(choices));

    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++)
        if (choice & 1U << tier)
            configure_tier(sim, tier);
    for (uint32_t tier = 0; sim->has_below && tier < POOL_NUM_TIERS; tier++)
        if (!random_chance(&sim->random, 4))
            config->ahead_pages[tier] = 1 + random_below(&sim->random, 30);
    config->store_when = POOL_STORE_EVICTED + random_below(&sim->random, 3);
    config->tells_places = sim->has_below || random_chance(&sim->random, 2);
    sim->store_mix = random_below(&sim->random, 8);
}

static void configure_pool(struct sim *sim)
{
    struct pool_config *config = &sim->config;

    configure_devices(sim);
    configure_tiers(sim);
    config->max_block_tokens = SIM_MAX_BLOCK_TOKENS;
    config->max_sequences = draw_cap(sim, 5, SIM_MAX_SEQUENCES);
    config->max_sequence_blocks = draw_cap(sim, 6, SIM_MAX_POSITIONS);
    config->max_tokens = draw_cap(sim, 256, 8192);
    config->max_payers = SIM_MAX_PAYERS;
    config->max_models = SIM_MAX_MODELS;
    config->max_arenas = draw_cap(sim, 5, SIM_CAP_ARENAS);
    config->max_sessions = draw_cap(sim, 3, SIM_MAX_SESSIONS);
    config->max_transfers = draw_cap(sim, 2, SIM_MAX_COPIES);
    config->max_waiters = draw_cap(sim, 1, SIM_MAX_REQUESTS / 2);
    config->max_steps = draw_cap(sim, 1, SIM_MAX_STEPS * 2);
    config->max_step_rows = draw_cap(sim, 2, SIM_MAX_ROWS);
    config->transfer_timeout_ms =
        random_chance(&sim->random, 2) ? 0 : 100 + random_below(&sim->random, 2000);
    config->sink = (struct pool_sink){.emit = sink_emit, .context = sim};
}

/* Seldom no slots: the group is not kept there. */
static struct pool_granule_shape draw_granule(struct sim *sim, uint64_t pages)
{
    struct pool_granule_shape shape = {
        1 + random_below(&sim->random, 3),
        random_chance(&sim->random, 12) ? 0 : 1 + random_below(&sim->random, 4)};

    if (shape.pages > pages)
        shape.pages = 1;
    return shape;
}

static void configure_groups(struct sim *sim, struct pool_model_shape *shape)
{
    for (uint32_t i = 0; i < shape->num_groups; i++) {
        struct pool_group *group = &shape->groups[i];

        group->pages = 1 + random_below(&sim->random, random_chance(&sim->random, 3) ? 3 : 1);
        group->slots = 1 + random_below(&sim->random, random_chance(&sim->random, 2) ? 4 : 2);
        if (random_chance(&sim->random, 2))
            group->window = 2 + random_below(&sim->random, shape->block_tokens * 3);
        if (sim->is_long)
            group->slots = 4;
        group->block_bytes = 20 + random_below(&sim->random, 100);
        for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++)
            if (sim->config.tiers[tier].pages)
                group->below[tier] = draw_granule(sim, sim->config.tiers[tier].pages);
    }
}

static void configure_model(struct sim *sim)
{
    static const uint32_t block_tokens[] = {1, 2, 3, 4, 4, 8, 16};
    struct sim_model *model = &sim->models[sim->num_models];
    struct pool_model_shape *shape = &model->shape;

    shape->block_tokens = sim->is_long ? 1 + random_below(&sim->random, 4)
                                       : draw_from(sim, block_tokens, ARRAY_SIZE(block_tokens));
    shape->num_groups = 1 + random_below(&sim->random, SIM_MAX_GROUPS);
    shape->num_layers =
        shape->num_groups + random_below(&sim->random, SIM_MAX_LAYERS + 1 - shape->num_groups);
    configure_groups(sim, shape);
    shape->num_ranks = random_chance(&sim->random, 2)
                           ? 1
                           : 1 + random_below(&sim->random, sim->config.num_devices);
    uint32_t first = random_below(&sim->random, sim->config.num_devices);
    for (uint32_t i = 0; i < shape->num_ranks; i++)
        shape->ranks[i] = (first + i) % sim->config.num_devices;
    sim->num_models++;

    uint32_t most = shape->block_tokens * (3 + random_below(&sim->random, 8));
    if (sim->is_long)
        most = SIM_MAX_TOKENS;
    if (most > sim->max_length)
        sim->max_length = most < SIM_MAX_TOKENS ? most : SIM_MAX_TOKENS;
}

static uint64_t least_pages(const struct sim *sim)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < sim->config.num_devices; i++)
        if (sim->config.devices[i].pages < least)
            least = sim->config.devices[i].pages;
    return least;
}

static struct pool_quota draw_quota(struct sim *sim, uint32_t pages)
{
    struct pool_quota quota = {.limit = POOL_UNLIMITED,
                               .weight = 1 + random_below(&sim->random, 3)};

    if (random_chance(&sim->random, 3))
        quota.guarantee = random_below(&sim->random, pages / SIM_MAX_PAYERS + 1);
    if (random_chance(&sim->random, 3))
        quota.limit = pages / 2 + random_below(&sim->random, pages);
    return quota;
}

static void configure_payer(struct sim *sim, bool is_domain)
{
    struct sim_payer *payer = &sim->payers[sim->num_payers];

    payer->is_domain = is_domain;
    payer->quota = draw_quota(sim, (uint32_t)least_pages(sim));
    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        payer->below[tier] =
            (struct pool_quota){.limit = POOL_UNLIMITED, .weight = payer->quota.weight};
        if (sim->config.tiers[tier].pages && random_chance(&sim->random, 2))
            payer->below[tier] = draw_quota(sim, (uint32_t)sim->config.tiers[tier].pages);
    }
    for (uint32_t tenant = 0; is_domain && tenant < sim->num_tenants; tenant++)
        payer->rights[tenant] = 1 + random_below(&sim->random, 3);
    sim->num_payers++;
    sim->num_tenants += !is_domain;
}

static void register_payer(struct sim *sim, uint32_t index)
{
    struct sim_payer *payer = &sim->payers[index];

    int err = payer->is_domain ? pool_domain_create(sim->pool, &payer->quota, &payer->id)
                               : pool_tenant_create(sim->pool, &payer->quota, &payer->id);
    sim_expect(sim, err == 0, "payer: %d", err);
    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        if (sim->config.tiers[tier].pages == 0)
            continue;
        err = pool_tier_quota_set(sim->pool, payer->id, tier, &payer->below[tier]);
        sim_expect(sim, err == 0, "tier_quota_set: %d", err);
    }
    for (uint32_t tenant = 0; payer->is_domain && tenant < sim->num_tenants; tenant++) {
        err =
            pool_domain_grant(sim->pool, payer->id, sim->payers[tenant].id, payer->rights[tenant]);
        sim_expect(sim, err == 0, "domain_grant: %d", err);
    }
}

void sim_register(struct sim *sim)
{
    int err = pool_create(&sim->config, &sim->pool);
    sim_expect(sim, err == 0, "pool_create: %d", err);
    pool_tick(sim->pool, sim->now_ms);
    for (uint32_t i = 0; i < sim->num_models; i++) {
        err = pool_model_register(sim->pool, &sim->models[i].shape, &sim->models[i].id);
        sim_expect(sim, err == 0, "model_register: %d", err);
    }
    for (uint32_t i = 0; i < sim->num_payers; i++)
        register_payer(sim, i);
    for (uint32_t tier = 0; tier < POOL_NUM_TIERS; tier++)
        sim->tiers[tier] =
            (struct sim_tier){.credit = sim->config.tiers[tier].store_bytes_per_s * 1000};
}

void sim_configure(struct sim *sim)
{
    static const uint32_t heats[] = {4, 10, 30, 100}, failures[] = {0, 3, 10, 50};
    uint32_t num_models = 1 + random_below(&sim->random, SIM_MAX_MODELS);
    uint32_t num_tenants = 1 + random_below(&sim->random, 3);
    uint32_t num_domains = random_below(&sim->random, 3);

    sim->heat = draw_from(sim, heats, ARRAY_SIZE(heats));
    sim->failures = draw_from(sim, failures, ARRAY_SIZE(failures));
    sim->now_ms = random_below(&sim->random, 1000);
    oracle_init(sim);
    sim->is_long = random_chance(&sim->random, 10);
    configure_pool(sim);
    while (sim->num_models < num_models)
        configure_model(sim);
    for (uint32_t i = 0; i < num_tenants + num_domains; i++)
        configure_payer(sim, i >= num_tenants);
    sim_register(sim);
}

void sim_finish(struct sim *sim)
{
    pool_destroy(sim->pool);
    device_finish(sim);
}
