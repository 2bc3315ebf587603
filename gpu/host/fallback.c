/* gpu/host/fallback.c - the fallbacks of the host device by name, each with its cost. */
#include "gpu/host/fallback.h"

/* clang-format off */
static const struct {
    const char *name;
    const char *cost;
} fallback_texts[NUM_FALLBACKS] = {
    [FALLBACK_MEMFD] = {"memfd-arenas",
        "no private tmpfs mount (needs CAP_SYS_ADMIN and fsopen): memory comes in 4 KiB pages, "
        "which take about ten times as long to populate and make copies 5-10 % slower; it can be "
        "swapped out; the sum of what tenants touch has no limit in the kernel; root, or the "
        "daemon's own user, can re-open a read-only arena for writing"},
    [FALLBACK_SMALL_PAGES] = {"small-pages",
        "tmpfs refused huge=always (a kernel without transparent huge pages): memory comes in "
        "4 KiB pages, which take about ten times as long to populate and make copies 5-10 % slower"},
    [FALLBACK_SWAPPABLE] = {"swappable",
        "tmpfs refused noswap (needs Linux 6.4): under memory pressure blocks go to swap, and "
        "attention waits for them; turn swap off on this machine"},
    [FALLBACK_NOT_POPULATED] = {"not-populated",
        "the machine did not give all the memory asked for at start: later commits may fail, and "
        "first use of memory waits for the machine; lower the budget or free memory"},
};
/* clang-format on */

void host_fallback_enter(struct host_fallbacks *fallbacks, enum host_fallback which, int reason)
{
    atomic_store_explicit(&fallbacks->reasons[which], 1 - reason, memory_order_relaxed);
}

size_t host_fallbacks_list(const struct host_fallbacks *fallbacks, struct gpu_fallback *out,
                           size_t max)
{
    size_t num_found = 0;

    for (size_t which = 0; which < NUM_FALLBACKS; which++) {
        int reason = atomic_load_explicit(&fallbacks->reasons[which], memory_order_relaxed);
        if (reason == 0)
            continue;
        if (num_found < max)
            out[num_found] = (struct gpu_fallback){.name = fallback_texts[which].name,
                                                   .cost = fallback_texts[which].cost,
                                                   .reason = 1 - reason};
        num_found++;
    }
    return num_found;
}
