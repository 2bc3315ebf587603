/* gpu/host/cpu.h - internal: which versions of the attention this CPU runs. */
#pragma once

#include <stddef.h>

struct attend_version;

/* The best first, plain C last; NULL past the last. */
const struct attend_version *cpu_version(size_t index);

/* By name; NULL for a name that is unknown or not for this CPU. @name NULL: the best. */
const struct attend_version *cpu_version_find(const char *name);
