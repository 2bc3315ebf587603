/* gpu/host/cpu_x86.c - the versions of the attention for x86-64, and its way to wait a moment. */
#include "gpu/host/attend_kernel.h"
#include "gpu/host/cpu.h"

#include <cpuid.h>
#include <immintrin.h>

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
const struct attend_version cpu_versions[] = {
    {"avx512bf16", has_avx512bf16, 80, attend_avx512bf16, convert_avx512bf16},
    {"avx512",     has_avx512,     80, attend_avx512,     convert_avx512},
    {"avx2",       has_avx2,       40, attend_avx2,       convert_avx2},
    {"plain",      has_c,          1,  attend_plain,      convert_plain},
    {NULL, NULL, 0, NULL, NULL},
};
/* clang-format on */

void cpu_relax(void)
{
    _mm_pause();
}
