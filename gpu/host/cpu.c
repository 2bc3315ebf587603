/* gpu/host/cpu.c - the versions of the attention, and the choice among them at run time. */
#include "gpu/host/cpu.h"
#include "gpu/host/attend_kernel.h"

#include <cpuid.h>
#include <string.h>

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx512bf16(void)
{
    unsigned a, b, c, d;

    return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}

static bool has_c(void)
{
    return true;
}

/* clang-format off */
static const struct attend_version versions[] = {
    {"avx512bf16", has_avx512bf16, 80, attend_avx512bf16, convert_avx512bf16},
    {"avx512",     has_avx512,     80, attend_avx512,     convert_avx512},
    {"avx2",       has_avx2,       40, attend_avx2,       convert_avx2},
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
