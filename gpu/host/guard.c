/* gpu/host/guard.c - a tenant may truncate the file of its own arena, or use up the mount by
 * touching holes; then our next access to its mapping is a SIGBUS.
 *
 * The handler puts zeros where the arena was, marks it damaged, and lets the access go on: whoever
 * was reading finds the mark when it is done. A signal handler belongs to the whole process, so
 * this is the one file of gpu/ with state of its own. A SIGBUS anywhere else goes to whoever
 * handled it before.
 */
#include "gpu/host/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

struct guard_table {
    _Atomic(struct guard_range *) ranges; /* NULL: free. Stored after @num_ranges */
    _Atomic uint32_t num_ranges;
};

static struct guard_table tables[GUARD_MAX_TABLES];
static pthread_mutex_t tables_mutex = PTHREAD_MUTEX_INITIALIZER; /* who writes them */
static unsigned num_tables;                                      /* under the mutex */
static struct sigaction handler_before;

static struct guard_range *range_of(uintptr_t address)
{
    for (size_t t = 0; t < GUARD_MAX_TABLES; t++) {
        struct guard_range *ranges = atomic_load(&tables[t].ranges);
        uint32_t num_ranges = atomic_load(&tables[t].num_ranges);

        for (uint32_t i = 0; ranges && i < num_ranges; i++) {
            uintptr_t base = atomic_load(&ranges[i].base);
            if (base != 0 && address >= base && address - base < atomic_load(&ranges[i].bytes))
                return &ranges[i];
        }
    }
    return NULL;
}

/* Async-signal-safe: atomics and one mmap(). */
static void handle_sigbus(int number, siginfo_t *what, void *context)
{
    int saved_errno = errno;
    struct guard_range *range = range_of((uintptr_t)what->si_addr);

    if (range) {
        atomic_store(&range->is_damaged, true);
        void *zeros = mmap((void *)atomic_load(&range->base), atomic_load(&range->bytes),
                           PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        errno = saved_errno;
        if (zeros != MAP_FAILED)
            return;
    }
    if ((handler_before.sa_flags & SA_SIGINFO) != 0 && handler_before.sa_sigaction) {
        handler_before.sa_sigaction(number, what, context);
        return;
    }
    if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
        handler_before.sa_handler(number);
        return;
    }
    (void)signal(SIGBUS, SIG_DFL); /* the access is repeated, and ends the process */
}

static int install_handler(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};

    action.sa_sigaction = handle_sigbus;
    (void)sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &handler_before) == 0 ? 0 : -errno;
}

int guard_add(struct guard_range *ranges, uint32_t num_ranges)
{
    int err = -EMFILE;

    (void)pthread_mutex_lock(&tables_mutex);
    for (size_t t = 0; t < GUARD_MAX_TABLES; t++) {
        if (atomic_load(&tables[t].ranges))
            continue;
        err = num_tables == 0 ? install_handler() : 0;
        if (!err) {
            num_tables++;
            atomic_store(&tables[t].num_ranges, num_ranges);
            atomic_store(&tables[t].ranges, ranges);
        }
        break;
    }
    (void)pthread_mutex_unlock(&tables_mutex);
    return err;
}

void guard_remove(const struct guard_range *ranges)
{
    (void)pthread_mutex_lock(&tables_mutex);
    for (size_t t = 0; t < GUARD_MAX_TABLES; t++) {
        if (!ranges || atomic_load(&tables[t].ranges) != ranges)
            continue;
        atomic_store(&tables[t].ranges, NULL);
        if (--num_tables == 0)
            (void)sigaction(SIGBUS, &handler_before, NULL);
    }
    (void)pthread_mutex_unlock(&tables_mutex);
}

void guard_range_set(struct guard_range *range, void *base, size_t bytes)
{
    atomic_store(&range->is_damaged, false);
    atomic_store(&range->bytes, bytes);
    atomic_store(&range->base, (uintptr_t)base);
}

void guard_range_clear(struct guard_range *range)
{
    atomic_store(&range->base, 0);
    atomic_store(&range->bytes, 0);
}
