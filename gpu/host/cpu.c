/* gpu/host/cpu.c - the choice among the versions of the attention, at run time. */
#include "gpu/host/cpu.h"
#include "gpu/host/attend_kernel.h"

#include <string.h>

const struct attend_version *cpu_version(size_t index)
{
    for (const struct attend_version *version = cpu_versions; version->name; version++)
        if (version->is_supported() && index-- == 0)
            return version;
    return NULL;
}

const struct attend_version *cpu_version_find(const char *name)
{
    const struct attend_version *version;

    for (size_t i = 0; (version = cpu_version(i)); i++)
        if (!name || strcmp(version->name, name) == 0)
            return version;
    return NULL;
}
