/* gpu/host/guard.h - internal: keeps a truncated arena from taking the daemon with it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where one arena is mapped. Written by the owner, read by the SIGBUS handler on any thread. */
struct guard_range {
    _Atomic uintptr_t base; /* 0: none. Stored after @bytes, loaded before it */
    _Atomic size_t bytes;
    _Atomic bool is_damaged; /* set by the handler: what the arena reads as is no longer its file */
};

enum { GUARD_MAX_TABLES = 16 };

/* The table has to stay until guard_remove(). -EMFILE: GUARD_MAX_TABLES are in use. */
int guard_add(struct guard_range *ranges, uint32_t num_ranges);
void guard_remove(const struct guard_range *ranges);

void guard_range_set(struct guard_range *range, void *base, size_t bytes);
void guard_range_clear(struct guard_range *range);
