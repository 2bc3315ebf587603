/* daemon/state_writer.c - one place a file, one thread that empties them. */
#include "daemon/state_writer.h"

#include "daemon/config.h"
#include "daemon/secret.h"
#include "daemon/state_file.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

const char *const state_names[NUM_STATE_NAMES] = {
    [STATE_EPOCHS] = "epochs", [STATE_DOMAINS] = "domains", [STATE_MODELS] = "models"};

struct state_writer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool has_thread, is_ending;
    int event_fd;
    char directory[512];
    struct place {
        enum { PLACE_EMPTY, PLACE_SUBMITTED, PLACE_DONE } state;
        void *bytes;
        size_t num_bytes;
        char secret[CONFIG_MAX_NAME + 1]; /* "": none is asked for */
        int err;
    } places[NUM_STATE_NAMES];
};

/* NULL: nothing is submitted. */
static struct place *place_next(struct state_writer *writer)
{
    for (size_t at = 0; at < NUM_STATE_NAMES; at++) {
        if (writer->places[at].state == PLACE_SUBMITTED)
            return &writer->places[at];
    }
    return NULL;
}

static int place_write(const struct state_writer *writer, const struct place *place)
{
    uint8_t secret[KEY_BYTES];
    int err = place->secret[0] ? secret_get(writer->directory, place->secret, secret) : 0;

    explicit_bzero(secret, sizeof(secret)); /* the owner reads it for itself */
    return err ? err
               : state_file_write(writer->directory, state_names[place - writer->places],
                                  place->bytes, place->num_bytes);
}

static void *writer_main(void *argument)
{
    struct state_writer *writer = argument;
    const uint64_t one = 1;
    struct place *place;

    pthread_mutex_lock(&writer->lock);
    for (;;) {
        while (!(place = place_next(writer)) && !writer->is_ending)
            pthread_cond_wait(&writer->wake, &writer->lock);
        if (!place)
            break;
        pthread_mutex_unlock(&writer->lock); /* the owner leaves a submitted place alone */
        int err = place_write(writer, place);
        pthread_mutex_lock(&writer->lock);
        place->err = err;
        place->state = PLACE_DONE;
        (void)!write(writer->event_fd, &one, sizeof(one)); /* fails only when it is readable */
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

int state_writer_create(const char *directory, struct state_writer **out_writer)
{
    struct state_writer *writer = calloc(1, sizeof(*writer));
    if (!writer)
        return -ENOMEM;

    int err = 0;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->wake, NULL);
    (void)snprintf(writer->directory, sizeof(writer->directory), "%s", directory);
    writer->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (writer->event_fd < 0)
        err = -errno;
    if (!err)
        err = -pthread_create(&writer->thread, NULL, writer_main, writer);
    if (err) {
        state_writer_destroy(writer);
        return err;
    }
    writer->has_thread = true;
    *out_writer = writer;
    return 0;
}

void state_writer_destroy(struct state_writer *writer)
{
    if (!writer)
        return;
    if (writer->has_thread) {
        pthread_mutex_lock(&writer->lock);
        writer->is_ending = true;
        pthread_cond_signal(&writer->wake);
        pthread_mutex_unlock(&writer->lock);
        pthread_join(writer->thread, NULL);
    }
    for (size_t at = 0; at < NUM_STATE_NAMES; at++)
        free(writer->places[at].bytes);
    if (writer->event_fd >= 0)
        (void)close(writer->event_fd);
    pthread_cond_destroy(&writer->wake);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}

int state_writer_event_fd(const struct state_writer *writer)
{
    return writer->event_fd;
}

void state_writer_submit(struct state_writer *writer, enum state_name name, void *bytes,
                         size_t num_bytes, const char *secret)
{
    struct place *place = &writer->places[name];

    pthread_mutex_lock(&writer->lock);
    assert(place->state == PLACE_EMPTY);
    place->bytes = bytes;
    place->num_bytes = num_bytes;
    (void)snprintf(place->secret, sizeof(place->secret), "%s", secret ? secret : "");
    place->state = PLACE_SUBMITTED;
    pthread_cond_signal(&writer->wake);
    pthread_mutex_unlock(&writer->lock);
}

bool state_writer_reap(struct state_writer *writer, enum state_name *out_name, int *out_err)
{
    bool is_found = false;
    uint64_t count;

    pthread_mutex_lock(&writer->lock);
    for (size_t at = 0; at < NUM_STATE_NAMES && !is_found; at++) {
        struct place *place = &writer->places[at];
        if (place->state != PLACE_DONE)
            continue;
        is_found = true;
        *out_name = (enum state_name)at;
        *out_err = place->err;
        free(place->bytes);
        *place = (struct place){0};
    }
    if (!is_found)
        (void)!read(writer->event_fd, &count, sizeof(count)); /* nothing is left: quiet again */
    pthread_mutex_unlock(&writer->lock);
    return is_found;
}
