/* tests/bench/limit_ipc.c - a bare ZeroMQ echo, and a bare ring. */
#include "tests/bench/limit_ipc.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

static void stop(pid_t *pid)
{
    if (*pid > 0) {
        (void)kill(*pid, SIGKILL);
        (void)waitpid(*pid, NULL, 0);
    }
    *pid = 0;
}

/* ---- echo ----------------------------------------------------------------------------------- */

/* False: there is nothing. */
static bool echo_one(void *router)
{
    zmq_msg_t identity, message;

    zmq_msg_init(&identity);
    if (zmq_msg_recv(&identity, router, ZMQ_DONTWAIT) < 0)
        return false;
    zmq_msg_init(&message);
    (void)zmq_msg_recv(&message, router, 0);
    (void)zmq_msg_send(&identity, router, ZMQ_SNDMORE);
    (void)zmq_msg_send(&message, router, 0);
    return true;
}

static void echo_serve(const char *path)
{
    char endpoint[128];
    void *router = zmq_socket(zmq_ctx_new(), ZMQ_ROUTER);
    zmq_pollitem_t item = {router, 0, ZMQ_POLLIN, 0};

    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
    if (zmq_bind(router, endpoint))
        _exit(1);
    for (;;) { /* until it is killed */
        (void)zmq_poll(&item, 1, -1);
        while (echo_one(router))
            ;
    }
}

int limit_echo_start(struct limit_echo *echo, const char *dir)
{
    (void)snprintf(echo->path, sizeof(echo->path), "%s/echo.sock", dir);
    echo->pid = fork();
    if (echo->pid < 0)
        return -errno;
    if (echo->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        echo_serve(echo->path);
    }
    return 0;
}

int limit_echo_connect(struct limit_echo *echo)
{
    char endpoint[128];
    const int zero = 0;

    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s", echo->path);
    echo->context = zmq_ctx_new();
    echo->socket = zmq_socket(echo->context, ZMQ_DEALER);
    (void)zmq_setsockopt(echo->socket, ZMQ_LINGER, &zero, sizeof(zero));
    return zmq_connect(echo->socket, endpoint) ? -errno : 0;
}

void limit_echo_stop(struct limit_echo *echo)
{
    if (echo->socket)
        (void)zmq_close(echo->socket);
    if (echo->context)
        (void)zmq_ctx_term(echo->context);
    stop(&echo->pid);
    (void)unlink(echo->path);
}

void limit_echo_send(struct limit_echo *echo, size_t num_bytes)
{
    static const char bytes[1 << 16];

    (void)zmq_send(echo->socket, bytes, num_bytes, 0);
}

/* False: none is there, and none is waited for. */
static bool echo_take(struct limit_echo *echo)
{
    zmq_msg_t message;

    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, echo->socket, ZMQ_DONTWAIT) < 0)
        return false;
    (void)zmq_msg_close(&message);
    return true;
}

static void echo_wait(struct limit_echo *echo)
{
    zmq_pollitem_t item = {echo->socket, 0, ZMQ_POLLIN, 0};

    if (zmq_poll(&item, 1, 10000) != 1) {
        fprintf(stderr, "limit_ipc: the echo is gone\n");
        exit(1);
    }
}

void limit_echo_receive(struct limit_echo *echo)
{
    while (!echo_take(echo))
        echo_wait(echo);
}

void limit_echo_run(struct limit_echo *echo, size_t num_messages, size_t num_bytes, size_t window)
{
    for (size_t sent = 0, done = 0; done < num_messages;) {
        for (; sent < num_messages && sent - done < window; sent++)
            limit_echo_send(echo, num_bytes);
        echo_wait(echo);
        while (echo_take(echo))
            done++;
    }
}

/* ---- ring ----------------------------------------------------------------------------------- */

enum { ENTRIES = 256 };

struct limit_ring_memory {
    _Alignas(64) _Atomic uint64_t num_asked;
    _Alignas(64) _Atomic uint64_t num_answered;
    _Alignas(64) _Atomic bool is_active, is_spinning;
    _Alignas(64) uint64_t asked[ENTRIES][16];
    uint64_t answers[ENTRIES][4];
};

static void ring_serve(struct limit_ring_memory *memory, int wake_fd)
{
    for (uint64_t next = 0;;) {
        if (!atomic_load(&memory->is_active)) {
            uint64_t count;
            atomic_store(&memory->is_spinning, false);
            (void)!read(wake_fd, &count, sizeof(count)); /* asleep, it disturbs nobody */
            continue;
        }
        atomic_store_explicit(&memory->is_spinning, true, memory_order_relaxed);
        if (atomic_load_explicit(&memory->num_asked, memory_order_acquire) == next)
            continue;
        uint64_t entry[16];
        memcpy(entry, memory->asked[next % ENTRIES], sizeof(entry));
        memcpy(memory->answers[next % ENTRIES], entry, sizeof(memory->answers[0]));
        atomic_store_explicit(&memory->num_answered, ++next, memory_order_release);
    }
}

int limit_ring_start(struct limit_ring *ring)
{
    ring->memory = mmap(NULL, sizeof(*ring->memory), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ring->memory == MAP_FAILED)
        return -errno;
    ring->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (ring->wake_fd < 0)
        return -errno;
    ring->pid = fork();
    if (ring->pid < 0)
        return -errno;
    if (ring->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        ring_serve(ring->memory, ring->wake_fd);
    }
    return 0;
}

void limit_ring_stop(struct limit_ring *ring)
{
    stop(&ring->pid);
    (void)close(ring->wake_fd);
    if (ring->memory)
        (void)munmap(ring->memory, sizeof(*ring->memory));
}

void limit_ring_run(struct limit_ring *ring, size_t num_trips)
{
    struct limit_ring_memory *memory = ring->memory;
    uint64_t next = atomic_load(&memory->num_asked), answer[4];

    for (size_t i = 0; i < num_trips; i++, next++) {
        memset(memory->asked[next % ENTRIES], (int)next, sizeof(memory->asked[0]));
        atomic_store_explicit(&memory->num_asked, next + 1, memory_order_release);
        while (atomic_load_explicit(&memory->num_answered, memory_order_acquire) <= next)
            ;
        memcpy(answer, memory->answers[next % ENTRIES], sizeof(answer));
    }
}

void limit_ring_wake(struct limit_ring *ring, bool is_active)
{
    const uint64_t one = 1;

    atomic_store(&ring->memory->is_active, is_active);
    if (is_active)
        (void)!write(ring->wake_fd, &one, sizeof(one));
    while (atomic_load(&ring->memory->is_spinning) != is_active)
        (void)usleep(50);
}
