/* gpu/host/cpu.h - internal: which versions of the attention this CPU runs. */
#pragma once

#include "gpu/host/attend_kernel.h"

#include <stddef.h>

/* All that are built, best first, up to one without a name: cpu_x86.c or cpu_none.c. */
extern const struct attend_version cpu_versions[];

/* For loops that spin. */
void cpu_relax(void);

/* The best first, plain C last; NULL past the last. */
const struct attend_version *cpu_version(size_t index);

/* By name; NULL for a name that is unknown or not for this CPU. @name NULL: the best. */
const struct attend_version *cpu_version_find(const char *name);
