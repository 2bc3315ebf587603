/* tests/e2e/daemon.c - starts, stops and asks a kvpoold of its own. */
#include "tests/e2e/daemon.h"

#include "tests/support/test.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const struct kvpool_model small_model = {.name = "small",
                                         .weights_revision = "1",
                                         .num_layers = 2,
                                         .num_q_heads = 4,
                                         .num_kv_heads = 2,
                                         .k_head_dim = 16,
                                         .v_head_dim = 16,
                                         .dtype = KVPOOL_F32};

void (*daemon_prepare)(void);

uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void tokens_make(uint32_t *out, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        out[i] = seed * 2654435761u + (uint32_t)i * 7919u;
}

static void config_write(const struct daemon *daemon, const char *config)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/token-b", daemon->dir);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fchmod(fileno(out), 0600), 0);
    fputs("token-of-tenant-b-0123\n", out);
    fclose(out);
    (void)snprintf(path, sizeof(path), "%s/kvpoold.yaml", daemon->dir);
    out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "run-directory: %s/run\nstate-directory: %s/state\n", daemon->dir, daemon->dir);
    fprintf(out, "page-bytes: 64KiB\n%s", config);
    if (!strstr(config, "tenants:"))
        fprintf(out,
                "tenants:\n  - {name: a, uids: [%u]}\n"
                "  - {name: b, token-file: %s/token-b}\n",
                getuid(), daemon->dir);
    fclose(out);
}

void daemon_spawn(struct daemon *daemon)
{
    char config[128];
    const char *program = getenv("KVPOOLD");

    assert_non_null(program);
    (void)snprintf(config, sizeof(config), "%s/kvpoold.yaml", daemon->dir);
    daemon->pid = fork();
    assert_true(daemon->pid >= 0);
    if (daemon->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that failed leaves nothing */
        if (daemon_prepare)
            daemon_prepare();
        execl(program, program, "--config", config, (char *)NULL);
        _exit(127);
    }
}

void daemon_await(const struct daemon *daemon)
{
    uint64_t end = now_ms() + 60000; /* with sanitizers, on a machine that is full of tests */
    /* A socket that is there is not yet a daemon that answers. */
    int answer = -1;
    char json[4096], dir[128];
    (void)snprintf(dir, sizeof(dir), "%s/run", daemon->dir);
    const struct kvpool_options options = {
        .struct_bytes = sizeof(options), .dir = dir, .connect_ms = 10};
    const struct kvpool_request list = {.verb = KVPOOL_LIST,
                                        .what = "status",
                                        .json = json,
                                        .json_max = sizeof(json),
                                        .deadline_ms = 5000};
    while (answer != 0 && now_ms() < end) {
        struct kvpool *kvpool = NULL;
        if (kvpool_connect_operator(&options, &kvpool) == 0)
            answer = kvpool_call(kvpool, &list, NULL);
        kvpool_disconnect(kvpool);
        if (answer != 0)
            (void)usleep(1000); /* its CPU may be ours */
    }
    assert_int_equal(answer, 0);
}

void daemon_restart(struct daemon *daemon)
{
    daemon_spawn(daemon);
    daemon_await(daemon);
}

void daemon_make(struct daemon *daemon, const char *config)
{
    (void)snprintf(daemon->dir, sizeof(daemon->dir), "/tmp/kvpool-e2e-XXXXXX");
    assert_non_null(mkdtemp(daemon->dir));
    config_write(daemon, config);
}

void daemon_start(struct daemon *daemon, const char *config)
{
    daemon_make(daemon, config);
    daemon_restart(daemon);
}

int daemon_stop(struct daemon *daemon, int signal)
{
    int status = 0;

    assert_int_equal(kill(daemon->pid, signal), 0);
    assert_int_equal(waitpid(daemon->pid, &status, 0), daemon->pid);
    daemon->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

void daemon_finish(struct daemon *daemon)
{
    if (daemon->pid > 0)
        (void)daemon_stop(daemon, SIGKILL);
    (void)nftw(daemon->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int daemon_setup(void **state)
{
    static struct daemon daemon;

    daemon_start(&daemon, "pool-bytes: 16MiB\n");
    *state = &daemon;
    return 0;
}

int daemon_teardown(void **state)
{
    daemon_finish(*state);
    return 0;
}

struct kvpool *engine_connect(const struct daemon *daemon, const char *token, uint32_t flags)
{
    char dir[128], message[KVPOOL_MAX_MESSAGE] = "";
    struct kvpool *kvpool = NULL;

    (void)snprintf(dir, sizeof(dir), "%s/run", daemon->dir);
    const struct kvpool_options options = {.struct_bytes = sizeof(options),
                                           .dir = dir,
                                           .token = token,
                                           .flags = flags,
                                           .out_message = message};
    int answer = kvpool_connect(&options, &kvpool);
    if (answer)
        print_error("connect: %s: %s\n", kvpool_status_name(answer), message);
    return kvpool;
}

struct kvpool *operator_connect(const struct daemon *daemon)
{
    char dir[128];
    struct kvpool *kvpool = NULL;

    (void)snprintf(dir, sizeof(dir), "%s/run", daemon->dir);
    const struct kvpool_options options = {.struct_bytes = sizeof(options), .dir = dir};
    assert_int_equal(kvpool_connect_operator(&options, &kvpool), 0);
    return kvpool;
}

uint64_t stat_read(const struct daemon *daemon, const char *name)
{
    static char json[1 << 20];
    char key[128];
    struct kvpool *kvpool = operator_connect(daemon);
    struct kvpool_result result;
    const struct kvpool_request request = {
        .verb = KVPOOL_STATS, .json = json, .json_max = sizeof(json)};

    assert_int_equal(kvpool_call(kvpool, &request, &result), 0);
    kvpool_disconnect(kvpool);
    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(json, key);
    if (!at)
        return UINT64_MAX;
    at += strlen(key);
    while (*at == ' ')
        at++;
    return strtoull(at, NULL, 10);
}

void stat_await(const struct daemon *daemon, const char *name, uint64_t value, unsigned ms)
{
    uint64_t end = now_ms() + ms;

    while (stat_read(daemon, name) != value) {
        if (now_ms() > end) {
            print_error("%s is %lu, not %lu\n", name, stat_read(daemon, name), value);
            fail();
        }
        (void)usleep(5000);
    }
}

bool has_fallback(const struct daemon *daemon, const char *name)
{
    static char json[1 << 20];
    char text[64];
    struct kvpool *kvpool = operator_connect(daemon);
    const struct kvpool_request request = {
        .verb = KVPOOL_LIST, .what = "status", .json = json, .json_max = sizeof(json)};

    assert_int_equal(kvpool_call(kvpool, &request, NULL), 0);
    kvpool_disconnect(kvpool);
    (void)snprintf(text, sizeof(text), "\"%s\"", name);
    const char *at = strstr(json, "\"fallbacks\"");
    assert_non_null(at);
    return strstr(at, text) != NULL;
}
