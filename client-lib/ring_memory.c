/*
 * client-lib/ring_memory.c - the client's half of the rings, in memory that the daemon reads and
 * writes at the same time: proto/ring.h says who writes what, and in which order.
 *
 * How far we are stands in the words that only we write, submissions.tail and completions.head: no
 * state is kept here, so that these serve a session whoever opened it.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client-lib/kvpool.h"
#include "proto/ring.h"

_Static_assert(KVPOOL_SUBMISSION_BYTES == sizeof(struct ring_submission), "the protocol's");
_Static_assert(KVPOOL_COMPLETION_BYTES == sizeof(struct ring_completion), "the protocol's");

static uint64_t own_word(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

uint32_t kvpool_ring_outstanding(const void *staging)
{
    const struct staging_header *header = staging;

    return (uint32_t)(own_word(&header->submissions.tail) - own_word(&header->completions.head));
}

int kvpool_ring_submit(void *staging, int daemon_eventfd, const void *submission)
{
    struct staging_header *header = staging;
    struct ring_words *words = &header->submissions;
    uint64_t tail = own_word(&words->tail);

    if (kvpool_ring_outstanding(staging) >= RING_ENTRIES)
        return -EAGAIN;
    memcpy((char *)staging + header->submissions_offset +
               tail % RING_ENTRIES * sizeof(struct ring_submission),
           submission, sizeof(struct ring_submission));

    /* Partner: the daemon sets armed, then looks at tail once more; both sequentially consistent.
     */
    atomic_store(&words->tail, tail + 1);
    if (atomic_load(&words->armed) && atomic_exchange(&words->armed, 0)) {
        uint64_t one = 1;
        if (write(daemon_eventfd, &one, sizeof(one)) < 0 && errno != EAGAIN)
            return -errno;
    }
    return 0;
}

int kvpool_ring_receive(void *staging, void *out_completion)
{
    struct staging_header *header = staging;
    struct ring_words *words = &header->completions;
    uint64_t head = own_word(&words->head);
    uint64_t num = atomic_load_explicit(&words->tail, memory_order_acquire) - head;

    if (num == 0)
        return 0;
    if (num > kvpool_ring_outstanding(staging))
        return -EPROTO;
    memcpy(out_completion,
           (char *)staging + header->completions_offset +
               head % RING_ENTRIES * sizeof(struct ring_completion),
           sizeof(struct ring_completion));
    atomic_store_explicit(&words->head, head + 1, memory_order_release);
    return 1;
}

static bool has_come(const struct staging_header *header)
{
    return atomic_load(&header->completions.tail) != own_word(&header->completions.head);
}

bool kvpool_ring_spin(const void *staging, uint32_t spin_us)
{
    struct timespec start, now;

    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 0; i < 32; i++)
            if (has_come(staging))
                return true;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000000000LL + now.tv_nsec - start.tv_nsec <
             spin_us * 1000LL);
    return false;
}

bool kvpool_ring_arm(void *staging)
{
    struct staging_header *header = staging;

    atomic_store(&header->completions.armed, 1); /* partner: the daemon, after its tail */
    if (!has_come(header))
        return true;
    kvpool_ring_disarm(staging);
    return false;
}

void kvpool_ring_disarm(void *staging)
{
    struct staging_header *header = staging;

    atomic_store(&header->completions.armed, 0);
}
