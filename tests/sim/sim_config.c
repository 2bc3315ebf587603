/* tests/sim/sim_config.c - a pool, models and payers from the seed: small, so that all is scarce.
 */
#include "tests/sim/sim.h"

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
}

/* Most caps are never reached; each is small in some runs. */
static uint32_t draw_cap(struct sim *sim, uint32_t low, uint32_t high)
{
    return random_chance(&sim->random, 16) ? low : high;
}

static void configure_pool(struct sim *sim)
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
    config->max_block_tokens = 16;
    config->max_sequences = draw_cap(sim, 5, SIM_MAX_SEQUENCES);
    config->max_sequence_blocks = draw_cap(sim, 6, SIM_MAX_POSITIONS);
    config->max_tokens = draw_cap(sim, 256, 8192);
    config->max_payers = SIM_MAX_PAYERS;
    config->max_models = SIM_MAX_MODELS;
    config->max_arenas = draw_cap(sim, 5, SIM_MAX_ARENAS);
    config->max_sessions = draw_cap(sim, 3, SIM_MAX_SESSIONS);
    config->max_transfers = draw_cap(sim, 2, SIM_MAX_COPIES);
    config->max_waiters = draw_cap(sim, 1, SIM_MAX_REQUESTS / 2);
    config->max_steps = draw_cap(sim, 1, SIM_MAX_STEPS * 2);
    config->max_step_rows = draw_cap(sim, 2, SIM_MAX_ROWS);
    config->transfer_timeout_ms =
        random_chance(&sim->random, 2) ? 0 : 100 + random_below(&sim->random, 2000);
    config->sink = (struct pool_sink){.emit = sink_emit, .context = sim};

    int err = pool_create(config, &sim->pool);
    sim_expect(sim, err == 0, "pool_create: %d", err);
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

    int err = pool_model_register(sim->pool, shape, &model->id);
    sim_expect(sim, err == 0, "model_register: %d", err);
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

static void configure_payer(struct sim *sim, bool is_domain)
{
    struct sim_payer *payer = &sim->payers[sim->num_payers];
    uint32_t pages = (uint32_t)least_pages(sim);
    struct pool_quota quota = {.limit = POOL_UNLIMITED,
                               .weight = 1 + random_below(&sim->random, 3)};

    if (random_chance(&sim->random, 3))
        quota.guarantee = random_below(&sim->random, pages / SIM_MAX_PAYERS + 1);
    if (random_chance(&sim->random, 3))
        quota.limit = pages / 2 + random_below(&sim->random, pages);
    payer->is_domain = is_domain;
    payer->quota = quota;
    int err = is_domain ? pool_domain_create(sim->pool, &quota, &payer->id)
                        : pool_tenant_create(sim->pool, &quota, &payer->id);
    sim_expect(sim, err == 0, "payer: %d", err);
    for (uint32_t tenant = 0; is_domain && tenant < sim->num_tenants; tenant++) {
        payer->rights[tenant] = 1 + random_below(&sim->random, 3);
        err =
            pool_domain_grant(sim->pool, payer->id, sim->payers[tenant].id, payer->rights[tenant]);
        sim_expect(sim, err == 0, "domain_grant: %d", err);
    }
    sim->num_payers++;
    sim->num_tenants += !is_domain;
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
    pool_tick(sim->pool, sim->now_ms);
    while (sim->num_models < num_models)
        configure_model(sim);
    for (uint32_t i = 0; i < num_tenants + num_domains; i++)
        configure_payer(sim, i >= num_tenants);
}

void sim_finish(struct sim *sim)
{
    pool_destroy(sim->pool);
    device_finish(sim);
}
