/*
 * tests/e2e/test_restore_fault.c - what an earlier life left is found again as the Nth call of that
 * fails: of adopting memory, and of reading what is on disk.
 *
 * N = 1, 2, 3 ... (with sanitizers each fifth) until no call is left to fail. A real daemon stores
 * prompts and ends; a server in this process finds them again, with the fault. Whatever failed, it
 * comes up, cold or partly warm, and its log says so; descriptors are counted, the sanitizers look
 * for memory. Then a real daemon again: what it finds is exact, and no less than the server had.
 */
#include "daemon/config.h"
#include "daemon/hold.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/tier_restore.h"
#include "tests/daemon/fault.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/store.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
enum { STEP = 5 }; /* a life takes ten times as long */
#else
enum { STEP = 1 };
#endif

enum { PROMPTS = 6, BLOCKS = 4, ALL_BLOCKS = PROMPTS * BLOCKS, MAX_LOG = 1 << 16 };

/* ---- which calls count ---------------------------------------------------------------------- */

static _Atomic bool has_begun;
static _Thread_local int depth; /* of functions below that are under way in this thread */
static _Thread_local bool is_owner, is_opening;

/* Those of the owner's functions below; and of threads that work for them. */
static bool is_meant(void)
{
    return is_owner ? depth > 0 : !is_opening && atomic_load(&has_begun);
}

#define WINDOW(result, name, parameters, arguments)                                                \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        atomic_store(&has_begun, true);                                                            \
        depth++;                                                                                   \
        result answer = __real_##name arguments;                                                   \
        depth--;                                                                                   \
        return answer;                                                                             \
    }

WINDOW(int, survive_init, (struct server * server), (server))
WINDOW(bool, survive_run, (struct server * server), (server))
WINDOW(int, gpu_device_adopt,
       (const struct gpu_device_options *options, int fd, struct gpu_device **out),
       (options, fd, out))
WINDOW(size_t, tier_restore_run, (struct server * server), (server))

#define VOID_WINDOW(name)                                                                          \
    void __real_##name(struct server *server);                                                     \
    void __wrap_##name(struct server *server);                                                     \
    void __wrap_##name(struct server *server)                                                      \
    {                                                                                              \
        atomic_store(&has_begun, true);                                                            \
        depth++;                                                                                   \
        __real_##name(server);                                                                     \
        depth--;                                                                                   \
    }

VOID_WINDOW(survive_begin)
VOID_WINDOW(tier_restore_begin)

/* A disk that cannot be opened is another matter: test_start_fault.c. */
int __real_disk_open(const struct disk_options *options, struct disk **out, char *error);
int __wrap_disk_open(const struct disk_options *options, struct disk **out, char *error);
int __wrap_disk_open(const struct disk_options *options, struct disk **out, char *error)
{
    is_opening = true;
    return __real_disk_open(options, out, error);
}

/* The loop's; nobody else stops it. */
bool __real_rings_run(struct server *server);
bool __wrap_rings_run(struct server *server);
bool __wrap_rings_run(struct server *server)
{
    if (!server_is_recovering(server))
        server_stop(server);
    return __real_rings_run(server);
}

#define MEANT(result, failure, name, parameters, arguments)                                        \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        return is_meant() && is_this_one() ? (failure) : __real_##name arguments;                  \
    }

/* clang-format off */
MEANT(void *, NULL, calloc, (size_t a, size_t b), (a, b))
MEANT(void *, NULL, malloc, (size_t a), (a))
MEANT(char *, NULL, strdup, (const char *a), (a))
MEANT(int, -1, eventfd, (unsigned a, int b), (a, b))
MEANT(int, -1, epoll_create1, (int a), (a))
MEANT(int, -1, epoll_ctl, (int a, int b, int c, struct epoll_event *d), (a, b, c, d))
MEANT(int, -1, memfd_create, (const char *a, unsigned b), (a, b))
MEANT(int, -1, fchmod, (int a, mode_t b), (a, b))
MEANT(int, -1, ftruncate64, (int a, off_t b), (a, b))
MEANT(int, -1, fallocate64, (int a, int b, off_t c, off_t d), (a, b, c, d))
MEANT(off_t, -1, lseek64, (int a, off_t b, int c), (a, b, c))
MEANT(int, -1, fstat64, (int a, struct stat *b), (a, b))
MEANT(ssize_t, -1, pread64, (int a, void *b, size_t c, off_t d), (a, b, c, d))
MEANT(ssize_t, -1, pwrite64, (int a, const void *b, size_t c, off_t d), (a, b, c, d))
MEANT(void *, MAP_FAILED, mmap64, (void *a, size_t b, int c, int d, int e, off_t f), (a, b, c, d, e, f))
MEANT(int, -1, socket, (int a, int b, int c), (a, b, c))
MEANT(int, -1, socketpair, (int a, int b, int c, int d[2]), (a, b, c, d))
MEANT(int, -1, connect, (int a, const struct sockaddr *b, socklen_t c), (a, b, c))
MEANT(int, -1, getsockopt, (int a, int b, int c, void *d, socklen_t *e), (a, b, c, d, e))
MEANT(ssize_t, -1, sendmsg, (int a, const struct msghdr *b, int c), (a, b, c))
MEANT(ssize_t, -1, recvmsg, (int a, struct msghdr *b, int c), (a, b, c))
/* clang-format on */

/* What runs already may be through by the time that another one is refused. */
int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    if (!is_meant() || !is_this_one())
        return __real_pthread_create(out, attributes, run, argument);
    (void)usleep(100000);
    return ENOMEM;
}

/* ---- lives ---------------------------------------------------------------------------------- */

static struct daemon daemon_;
static struct store_disk disk;
static int log_fd;
static char log_lines[MAX_LOG];
static bool has_failed; /* the call of the last life */
static bool is_mapped;  /* memory is exported for writing: it is copied, not adopted in its place */

static void log_begin(void)
{
    assert_int_equal(ftruncate(log_fd, 0), 0);
    log_configure(&(struct log_options){.fd = log_fd});
}

static void log_end(void)
{
    ssize_t bytes = pread(log_fd, log_lines, sizeof(log_lines) - 1, 0);

    assert_true(bytes >= 0);
    log_lines[bytes] = '\0';
}

/* A line of LOG_WARN or LOG_ERROR. */
static bool log_complains(void)
{
    return strstr(log_lines, "<4>") || strstr(log_lines, "<3>");
}

/* How many blocks it found in memory and on disk, the call of @number failing; -1: not up. */
static int server_live(int number)
{
    static struct config_error error;
    struct server *server = NULL;
    struct config *config;
    char path[96];
    int found = -1;

    (void)snprintf(path, sizeof(path), "%s/kvpoold.yaml", daemon_.dir);
    assert_int_equal(config_load(path, &config, &error), 0);
    log_begin();
    atomic_store(&has_begun, false);
    failed_errno = ENOMEM;
    calls_left = number;
    is_owner = true;
    int err = server_create(config, path, &server);
    if (!err) {
        err = server_run(server);
        found = err ? -1
                    : (int)(server->survival.counters.restored_blocks +
                            server->tiers.disk.recovery.restored_blocks);
    }
    has_failed = calls_left == 0;
    calls_left = 0;
    if (server)
        server_destroy(server);
    is_owner = false;
    config_destroy(config);
    log_end();
    return found;
}

/* What a real daemon finds of the prompts, in blocks; all of them are there after it. */
static int daemon_live(void)
{
    struct kvpool_result result;
    struct kvpool_arena arena;
    int found = 0;

    daemon_restart(&daemon_);
    stat_await(&daemon_, "memory_adopting", 0, 20000);
    struct kvpool *kvpool = engine_connect(&daemon_, NULL, is_mapped ? KVPOOL_MAPPED : 0);
    uint32_t model = store_register(kvpool);
    if (is_mapped) {
        assert_int_equal(kvpool_open_arena(kvpool, model, 0, NULL, &arena), 0);
        kvpool_close_arena(&arena);
        kvpool_disconnect(kvpool);
        kvpool = engine_connect(&daemon_, NULL, 0);
        model = store_register(kvpool);
    }
    for (uint32_t seed = 1; seed <= PROMPTS; seed++) {
        assert_int_equal(store_get(kvpool, model, seed, BLOCKS, &result), 0);
        found += (int)(result.matched / STORE_TOKENS);
        assert_int_equal(store_put(kvpool, model, seed, BLOCKS, false), 0);
    }
    store_settle(&daemon_);
    kvpool_disconnect(kvpool);
    assert_int_equal(daemon_stop(&daemon_, SIGTERM), 0);
    return found;
}

/* One life with the fault, and one after it. Returns what the first one found. */
static int life_check(const char *what, int number, size_t descriptors)
{
    int found = server_live(number);
    size_t now = count_descriptors();
    bool is_named = log_complains();
    int next = daemon_live();
    const char *wrong = NULL;

    if (now != descriptors)
        wrong = "descriptors are left";
    else if (found < ALL_BLOCKS && !is_named)
        wrong = "it lost something and said nothing";
    else if (found < 0 && !strstr(log_lines, "keep_failed"))
        wrong = "it did not start";
    else if (found < 0 && next < ALL_BLOCKS)
        wrong = "it did not start, and took what was kept with it";
    else if (next < found && !is_named)
        wrong = "it lost something later, and said nothing";
    if (wrong)
        fail_msg("%s: call %d: %s: %d blocks found, then %d:\n%s", what, number, wrong, found, next,
                 log_lines);
    return found;
}

static void every_call_may_fail(const char *what, int least, int most_refused)
{
    int number = 0, num_refused = 0, num_cold = 0, num_partly = 0;

    (void)daemon_live();
    assert_int_equal(server_live(0), ALL_BLOCKS); /* and what is made once in a process */
    assert_int_equal(daemon_live(), ALL_BLOCKS);
    size_t descriptors = count_descriptors();
    do {
        number += STEP;
        int found = life_check(what, number, descriptors);
        num_refused += found < 0;
        num_cold += found == 0;
        num_partly += found > 0 && found < ALL_BLOCKS;
    } while (has_failed);
    print_message("%s: %d calls; %d stop it, %d lives were cold, %d partly warm\n", what,
                  number - STEP, num_refused, num_cold, num_partly);
    assert_true(number - STEP >= least);
    assert_in_range(num_refused, 0, most_refused);
    assert_int_equal(server_live(0), ALL_BLOCKS); /* nothing is broken for good */
}

static void begin(const char *settings, bool has_disk)
{
    char config[768], of_disk[256] = "";

    store_disk_make(&disk);
    if (has_disk)
        (void)snprintf(of_disk, sizeof(of_disk),
                       "disk-directory: %s\ndisk-max-bytes: 4MiB\ndisk-granule-bytes: 256KiB\n"
                       "disk-max-block-bytes: 64KiB\ndisk-queue-depth: 4\n"
                       "disk-max-blocks: 256\n",
                       disk.dir);
    (void)snprintf(config, sizeof(config),
                   "pool-bytes: 4MiB\nwatermark-pages: 0\nmax-blocks: 256\nworker-threads: 1\n"
                   "max-sessions: 8\nmax-tenant-sessions: 8\nmax-sequences: 64\n"
                   "max-tokens: 65536\nmax-arenas: 8\nmax-models: 4\ncredits: 8\n"
                   "max-transfers: 64\nmax-waiters: 16\nmax-steps: 4\n%s%s",
                   settings, of_disk);
    daemon_make(&daemon_, config);
    log_fd = memfd_create("log", MFD_CLOEXEC);
    assert_true(log_fd >= 0 && fcntl(log_fd, F_SETFL, O_APPEND) == 0);
}

static int finish(void **state)
{
    (void)state;
    log_configure(&(struct log_options){.fd = STDERR_FILENO});
    (void)close(log_fd);
    store_finish(&daemon_, &disk);
    return 0;
}

static void memory_is_adopted_in_its_place(void **state)
{
    (void)state;
    begin("keep: holder\n", false);
    every_call_may_fail("in place", 30, 20);
}

static void memory_is_copied(void **state)
{
    (void)state;
    begin("keep: holder\n", false);
    is_mapped = true;
    every_call_may_fail("copied", 40, 20);
    is_mapped = false;
}

static void blocks_are_read_from_disk(void **state)
{
    (void)state;
    begin("keep: none\nstore-when: at-once\n", true);
    every_call_may_fail("from disk", 5, 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, finish)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(memory_is_adopted_in_its_place),
        TEST(memory_is_copied),
        TEST(blocks_are_read_from_disk),
    };

    if (argc > 1 && strcmp(argv[1], "hold") == 0) /* a holder is the daemon's own program */
        return hold_command(argc - 1, argv + 1);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
