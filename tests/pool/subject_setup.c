/* tests/pool/subject_setup.c - the shell's lines that set a pool up. */
#include "tests/pool/subject_core.h"

#include <string.h>

enum { MAX_BLOCKS_AT_LEAST = 1 << 17, MAX_BLOCKS_AT_MOST = 1 << 22, BLOCKS_A_GRANULE = 64 };

/* blocks= and watermark=, or devices= and watermarks=. Returns the pages of all. */
static uint64_t make_devices(const struct script_command *command, struct pool_config *config)
{
    uint64_t pages = 0;

    if (command->devices.num == 0) {
        config->devices[0] = (struct pool_device){command->blocks, command->watermark};
        return command->blocks;
    }
    config->num_devices = (uint32_t)command->devices.num;
    for (size_t i = 0; i < command->devices.num; i++) {
        config->devices[i].pages = command->devices.items[i];
        config->devices[i].watermark = command->watermarks.items[i]; /* 0 where left out */
        pages += command->devices.items[i];
    }
    return pages;
}

/* host=, disk= and ahead=. Granules below are those of the device. */
static void make_tiers(const struct script_command *command, struct pool_config *config)
{
    const uint64_t pages[POOL_NUM_TIERS] = {
        [POOL_TIER_HOST] = command->host, [POOL_TIER_DISK] = command->disk};

    for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++) {
        config->ahead_pages[tier] = command->ahead;
        if (pages[tier] > 0)
            config->tiers[tier] = (struct pool_tier_config){
                .pages = pages[tier], .max_slots = (uint32_t)pages[tier] * BLOCKS_A_GRANULE};
    }
    config->ahead_pages[POOL_TIER_DEVICE] = command->ahead;
}

void core_pool(struct core *core, const struct script_command *command, struct text *answer)
{
    struct pool_config config;

    if (core->pool) {
        text_add(answer, "error: there is a pool already");
        return;
    }
    pool_config_init(&config, 1, 1);
    uint64_t blocks = make_devices(command, &config) * BLOCKS_A_GRANULE;
    blocks = blocks < MAX_BLOCKS_AT_LEAST ? MAX_BLOCKS_AT_LEAST : blocks;
    blocks = blocks > MAX_BLOCKS_AT_MOST ? MAX_BLOCKS_AT_MOST : blocks;
    config.max_blocks = (uint32_t)blocks;
    config.max_block_tokens = (uint32_t)command->block_tokens;
    config.max_tokens = UINT64_C(1) << 24;
    config.max_sequences = command->block_tokens > 4096 ? 1024 : 65535; /* a chunk each */
    config.max_sessions = 65535;
    config.max_sequence_blocks = 1 << 20;
    config.max_models = MAX_NAMES;
    config.max_payers = MAX_NAMES;
    config.max_arenas = UINT16_MAX / POOL_NUM_TIERS;
    make_tiers(command, &config);
    config.sink = (struct pool_sink){core_on_effect, core};
    core->block_tokens = command->block_tokens;
    int err = pool_create(&config, &core->pool);
    if (err)
        text_add(answer, "error: pool_create: %s", strerror(-err));
    else
        text_add(answer, "ok");
}

void core_payer(struct core *core, const struct script_command *command, struct text *answer)
{
    bool is_domain = command->verb == VERB_DOMAIN;
    struct pool_quota quota = {command->guarantee, command->limit, command->weight};
    pool_payer readers[SCRIPT_MAX_READERS], id;

    for (size_t i = 0; i < command->num_readers; i++) {
        readers[i] = core_find_name(core->payers, core->num_payers, command->readers[i]);
        if ((readers[i] == POOL_NONE || core->payers[readers[i]].is_domain) &&
            core_refused(answer, POOL_NOT_FOUND))
            return;
    }
    if (core_find_name(core->payers, core->num_payers, command->name) != POOL_NONE &&
        core_refused(answer, POOL_EXISTS))
        return;
    if (core_refused(answer, is_domain ? pool_domain_create(core->pool, &quota, &id)
                                       : pool_tenant_create(core->pool, &quota, &id)))
        return;
    for (size_t i = 0; i < command->num_readers; i++)
        (void)pool_domain_grant(core->pool, id, readers[i], POOL_MAY_READ);
    strcpy(core->payers[id].text, command->name);
    core->payers[id].is_domain = is_domain;
    core->num_payers++;
    text_add(answer, "ok");
}

void core_model(struct core *core, const struct script_command *command, struct text *answer)
{
    struct pool_model_shape shape = {.block_tokens = (uint32_t)core->block_tokens,
                                     .num_layers = (uint32_t)command->layers,
                                     .num_groups = (uint32_t)command->num_groups,
                                     .num_ranks = 1};
    pool_model id;

    if (command->ranks.num > 0)
        shape.num_ranks = (uint32_t)command->ranks.num;
    for (size_t i = 0; i < command->ranks.num; i++)
        shape.ranks[i] = (uint32_t)command->ranks.items[i];

    for (size_t i = 0; i < command->num_groups; i++)
        shape.groups[i] =
            (struct pool_group){.window = command->groups[i].window,
                                .pages = command->pages.num ? (uint32_t)command->pages.items[i] : 1,
                                .slots = command->groups[i].per_granule,
                                .block_bytes = 1};
    for (size_t i = 0; i < command->num_groups; i++) {
        for (enum pool_tier tier = POOL_TIER_HOST; tier < POOL_NUM_TIERS; tier++)
            shape.groups[i].below[tier] =
                (struct pool_granule_shape){shape.groups[i].pages, shape.groups[i].slots};
    }
    if (core_find_name(core->models, core->num_models, command->name) != POOL_NONE &&
        core_refused(answer, POOL_EXISTS))
        return;
    if (core_refused(answer, pool_model_register(core->pool, &shape, &id)))
        return;
    strcpy(core->models[id].text, command->name);
    core->shapes[id] = shape;
    core->num_models++;
    text_add(answer, "ok");
}
