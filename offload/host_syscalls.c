/* offload/host_syscalls.c - the real system calls of the host tier: libnuma is not needed. */
#include "offload/host_syscalls.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Not by the C library's names: sanitizers make its munlock() do nothing. */
static int call_mlock2(const void *address, size_t bytes, unsigned flags)
{
    return (int)syscall(SYS_mlock2, address, bytes, flags);
}

/* What is locked on fault counts against the limit at once, and takes no memory. */
static int call_may_lock(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -1;

    int answer = call_mlock2(at, bytes, MLOCK_ONFAULT);
    int reason = errno;
    (void)munmap(at, bytes);
    errno = reason;
    return answer;
}

static int call_munlock(const void *address, size_t bytes)
{
    return (int)syscall(SYS_munlock, address, bytes);
}

static long call_mbind(void *address, unsigned long bytes, int mode, const unsigned long *nodes,
                       unsigned long max_node, unsigned flags)
{
    return syscall(SYS_mbind, address, bytes, mode, nodes, max_node, flags);
}

/* Containers often refuse get_mempolicy(): a machine with one node must not be told so. */
static bool has_one_node(void)
{
    char text[16] = "";
    FILE *file = fopen("/sys/devices/system/node/online", "re");
    if (!file)
        return true; /* a kernel without NUMA */

    bool is_read = fgets(text, sizeof(text), file) != NULL;
    (void)fclose(file);
    return is_read && strcmp(text, "0\n") == 0;
}

static int allowed_nodes(unsigned long *out_nodes, unsigned long max_node)
{
    int num = 0;

    if (has_one_node())
        return 1;
    if (syscall(SYS_get_mempolicy, NULL, out_nodes, max_node, NULL, MPOL_F_MEMS_ALLOWED) != 0)
        return -1;
    for (unsigned long i = 0; i < max_node / (8 * sizeof(*out_nodes)); i++)
        num += __builtin_popcountl(out_nodes[i]);
    return num;
}

const struct host_tier_syscalls host_tier_syscalls = {
    .mlock2 = call_mlock2,
    .may_lock = call_may_lock,
    .munlock = call_munlock,
    .mbind = call_mbind,
    .nodes = allowed_nodes,
};
