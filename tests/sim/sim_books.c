/*
 * tests/sim/sim_books.c - quotas, from outside: what a verb that takes slots may do to whose
 * charge.
 *
 * Whoever asks gets over its limit only where it was over it before (limits are admission, never
 * clean-up), and nobody else is evicted below its guarantee.
 */
#include "tests/sim/sim.h"

void books_open(struct sim *sim, struct sim_books *out_books)
{
    struct pool_payer_stats stats;

    for (uint32_t payer = 0; payer < sim->num_payers; payer++) {
        int err = pool_payer_stats(sim->pool, sim->payers[payer].id, &stats);
        sim_expect(sim, err == 0, "payer_stats: %d", err);
        memcpy(out_books->charged[payer], stats.charged_pages, sizeof(stats.charged_pages));
    }
}

static void check_payer(const struct sim *sim, uint32_t payer, bool has_asked,
                        const struct sim_books *before, const struct sim_books *after)
{
    const struct pool_quota *quota = &sim->payers[payer].quota;

    for (uint32_t device = 0; device < sim->config.num_devices; device++) {
        uint64_t old = before->charged[payer][device], new = after->charged[payer][device];
        sim_expect(sim, new <= old || has_asked, "payer %u is charged, and did not ask", payer);
        sim_expect(sim, new <= old || new <= quota->limit,
                   "payer %u is charged %lu pages, its limit is %lu", payer, new, quota->limit);
        sim_expect(sim, new >= old || has_asked || new >= quota->guarantee,
                   "payer %u is evicted to %lu pages on device %u, its guarantee is %lu", payer,
                   new, device, quota->guarantee);
    }
}

void books_close(struct sim *sim, const struct sim_books *before, uint32_t askers)
{
    struct sim_books after;

    if (sim->has_slices)
        return; /* they go on inside the verb, and let go of what nobody evicts */
    books_open(sim, &after);
    for (uint32_t payer = 0; payer < sim->num_payers; payer++)
        check_payer(sim, payer, askers >> payer & 1, before, &after);
}
