/* tests/pool/subject_tiers.c - the shell's lines for tiers below the device. */
#include "tests/pool/subject_core.h"

#include <string.h>

static const char *const tier_words[POOL_NUM_TIERS] = {
    [POOL_TIER_DEVICE] = "device", [POOL_TIER_HOST] = "host", [POOL_TIER_DISK] = "disk"};

/* The place of @word among @words; @count: it is none of them. */
static uint32_t find_word(const char *const *words, uint32_t count, const char *word)
{
    uint32_t at = 0;

    while (at < count && strcmp(words[at], word) != 0)
        at++;
    return at;
}

enum pool_tier core_find_tier(const char *word)
{
    return find_word(tier_words, POOL_NUM_TIERS, word);
}

void core_tier(struct core *core, const struct script_command *command, struct text *answer)
{
    static const char *const modes[] = {
        [POOL_TIER_ON] = "on", [POOL_TIER_READ_ONLY] = "read-only", [POOL_TIER_OFF] = "off"};
    enum pool_tier_mode mode = find_word(modes, POOL_TIER_OFF + 1, command->mode);

    if (core_refused(answer, pool_tier_set(core->pool, core_find_tier(command->name), mode)))
        return;
    core_settle(core);
    text_add(answer, "ok");
}

void core_store(struct core *core, const struct script_command *command, struct text *answer)
{
    static const char *const stores[] = {
        [POOL_STORE_PROMPT] = "prompt", [POOL_STORE_NONE] = "none", [POOL_STORE_ALL] = "all"};
    enum pool_store store = find_word(stores, POOL_STORE_ALL + 1, command->mode);
    const struct named_session *session = core_find_session(core, command->session);

    if (!core_refused(answer, session ? pool_session_set_store(core->pool, session->id, store)
                                      : POOL_NOT_FOUND))
        text_add(answer, "ok");
}

void core_prefetch(struct core *core, const struct script_command *command, struct text *answer)
{
    struct identity identity = {0};
    struct pool_prompt prompt;
    struct pool_prefetched got;

    if (!core_make_prompt(core, command, &identity, &prompt, answer))
        return;
    int result = pool_prefetch(core->pool, &prompt, &got);
    core_tokens_finish(&prompt.tokens);
    core_identity_finish(&identity);
    core_settle(core);
    if (!core_refused(answer, result))
        text_add(answer, "ok present=%llu coming=%llu matched=%llu",
                 (unsigned long long)got.present, (unsigned long long)got.coming,
                 (unsigned long long)got.matched);
}

/* One line for each tier that there is. */
void core_tiers(struct core *core, const struct script_command *command, struct text *answer)
{
    (void)command;
    for (enum pool_tier tier = POOL_TIER_DEVICE; tier < POOL_NUM_TIERS; tier++) {
        struct pool_tier_stats stats;
        uint64_t num_skipped = 0;
        if (pool_tier_stats(core->pool, tier, &stats))
            continue;
        for (uint32_t skip = 0; skip < POOL_NUM_SKIPS; skip++)
            num_skipped += stats.skipped[skip];
        text_add(answer,
                 "%s%s: cached=%llu reserved=%llu stored=%llu promoted=%llu hits=%llu "
                 "evicted=%llu skipped=%llu",
                 tier == POOL_TIER_DEVICE ? "" : "\n", tier_words[tier],
                 (unsigned long long)stats.evictable, (unsigned long long)stats.reserved,
                 (unsigned long long)stats.stores_done, (unsigned long long)stats.promotions_done,
                 (unsigned long long)stats.hit_tokens, (unsigned long long)stats.evictions,
                 (unsigned long long)num_skipped);
    }
}
