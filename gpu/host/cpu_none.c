/* gpu/host/cpu_none.c - for CPUs that have no version of the attention of their own: plain C. */
#include "gpu/host/attend_kernel.h"
#include "gpu/host/cpu.h"

static bool has_c(void)
{
    return true;
}

const struct attend_version cpu_versions[] = {
    {"plain", has_c, 1, attend_plain, convert_plain},
    {NULL, NULL, 0, NULL, NULL},
};

void cpu_relax(void)
{
    __asm__ volatile("" ::: "memory");
}
