/* gpu/host/cpu.c - the versions of the attention, and the choice among them at run time. */
#include "gpu/host/cpu.h"
#include "gpu/host/attend_kernel.h"

#include <string.h>

static bool has_c(void)
{
    return true;
}

/* clang-format off */
static const struct attend_version versions[] = {
    {"plain",      has_c,          1,  attend_plain,      convert_plain},
};
/* clang-format on */

const struct attend_version *cpu_version(size_t index)
{
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++)
        if (versions[i].is_supported() && index-- == 0)
            return &versions[i];
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
