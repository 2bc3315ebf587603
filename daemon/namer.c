/*
 * daemon/namer.c - one queue, one thread.
 *
 * The owner advances `submitted`, the thread `done`, the owner `reaped`; jobs are entries of one
 * ring between them. The lock is held for a few instructions, by either side.
 */
#include "daemon/namer.h"

#include "daemon/prompts.h"
#include "daemon/server.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct namer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool has_thread, is_ending;
    int event_fd;
    uint32_t max;
    uint64_t submitted, done, reaped;
    struct naming **ring;
    struct key_hasher *hasher;
};

void naming_run(struct key_hasher *hasher, struct naming *naming)
{
    struct key_prompt prompt = {.parent = &naming->parent,
                                .first_block = naming->first_block,
                                .tokens = naming->tokens,
                                .num_tokens = naming->num_tokens,
                                .block_tokens = naming->block_tokens,
                                .extras = naming->extras,
                                .num_extras = naming->num_extras,
                                .out = naming->keys};

    /* A sequence that is there has its own keys from the pool. */
    bool is_known = naming->kind == PROMPT_RESUME || naming->kind == PROMPT_PREFETCH_SEQUENCE;

    naming->err = 0;
    if (!is_known)
        naming->err = key_chain(hasher, &prompt);
    if (naming->err || !naming->has_shared)
        return;
    prompt.parent = &naming->shared_root;
    prompt.out = naming->shared_keys;
    naming->err = key_chain(hasher, &prompt);
}

static void *namer_main(void *argument)
{
    struct namer *namer = argument;
    const uint64_t one = 1;

    pthread_mutex_lock(&namer->lock);
    for (;;) {
        while (namer->done == namer->submitted && !namer->is_ending)
            pthread_cond_wait(&namer->wake, &namer->lock);
        if (namer->is_ending)
            break;
        struct naming *naming = namer->ring[namer->done % namer->max];
        pthread_mutex_unlock(&namer->lock);
        naming_run(namer->hasher, naming);
        pthread_mutex_lock(&namer->lock);
        namer->done++;
        (void)!write(namer->event_fd, &one, sizeof(one)); /* fails only when it is readable */
    }
    pthread_mutex_unlock(&namer->lock);
    return NULL;
}

int namer_create(uint32_t max_jobs, struct namer **out_namer)
{
    struct namer *namer = calloc(1, sizeof(*namer));
    if (!namer)
        return -ENOMEM;

    int err = -ENOMEM;
    namer->max = max_jobs;
    pthread_mutex_init(&namer->lock, NULL);
    pthread_cond_init(&namer->wake, NULL);
    namer->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    namer->ring = calloc(max_jobs, sizeof(*namer->ring));
    if (namer->event_fd < 0 || !namer->ring)
        goto fail;
    err = key_hasher_create(&namer->hasher);
    if (err)
        goto fail;
    err = -pthread_create(&namer->thread, NULL, namer_main, namer);
    if (err)
        goto fail;
    namer->has_thread = true;
    *out_namer = namer;
    return 0;

fail:
    namer_destroy(namer);
    return err;
}

void namer_destroy(struct namer *namer)
{
    if (!namer)
        return;
    if (namer->has_thread) {
        pthread_mutex_lock(&namer->lock);
        namer->is_ending = true;
        pthread_cond_signal(&namer->wake);
        pthread_mutex_unlock(&namer->lock);
        pthread_join(namer->thread, NULL);
    }
    if (namer->event_fd >= 0)
        (void)close(namer->event_fd);
    key_hasher_destroy(namer->hasher);
    pthread_cond_destroy(&namer->wake);
    pthread_mutex_destroy(&namer->lock);
    free(namer->ring);
    free(namer);
}

int namer_event_fd(const struct namer *namer)
{
    return namer->event_fd;
}

void namer_submit(struct namer *namer, struct naming *naming)
{
    pthread_mutex_lock(&namer->lock);
    assert(namer->submitted - namer->reaped < namer->max);
    namer->ring[namer->submitted++ % namer->max] = naming;
    pthread_cond_signal(&namer->wake);
    pthread_mutex_unlock(&namer->lock);
}

struct naming *namer_reap(struct namer *namer)
{
    struct naming *naming = NULL;
    uint64_t count;

    pthread_mutex_lock(&namer->lock);
    if (namer->reaped < namer->done)
        naming = namer->ring[namer->reaped++ % namer->max];
    else
        (void)!read(namer->event_fd, &count, sizeof(count)); /* nothing is left: quiet again */
    pthread_mutex_unlock(&namer->lock);
    return naming;
}
