/* tests/e2e/watch.c - what is watched of a daemon while somebody misbehaves. */
#include "tests/e2e/raw.h"

#include "tests/support/test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- processes ------------------------------------------------------------------------------ */

static FILE *process_open(pid_t pid, const char *what)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    return in;
}

uint64_t process_rss_kib(pid_t pid)
{
    FILE *in = process_open(pid, "status");
    char line[256];
    uint64_t kib = 0;

    while (fgets(line, sizeof(line), in))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtoull(line + 6, NULL, 10);
    fclose(in);
    assert_true(kib > 0);
    return kib;
}

unsigned long process_ticks(pid_t pid)
{
    FILE *in = process_open(pid, "stat");
    unsigned long user = 0, system = 0;

    assert_int_equal(
        fscanf(in, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system),
        2);
    fclose(in);
    return user + system;
}

unsigned process_count(pid_t pid, const char *what)
{
    char path[64];
    unsigned count = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

unsigned process_maps(pid_t pid)
{
    FILE *in = process_open(pid, "maps");
    unsigned count = 0;

    for (int c = fgetc(in); c != EOF; c = fgetc(in))
        count += c == '\n';
    fclose(in);
    return count;
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* Of what grows without leaving anything behind: "uptime_ms":123 -> "uptime_ms":- */
static void numbers_hide(char *json, const char *name)
{
    char key[32];

    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    for (char *at = strstr(json, key); at; at = strstr(at, key)) {
        at += strlen(key);
        size_t length = strspn(at, "0123456789");
        *at = '-';
        memmove(at + 1, at + length, strlen(at + length) + 1);
    }
}

const char *lists_read(const struct daemon *daemon)
{
    static const char *const growing[] = {"uptime_ms", "query_tokens", "hit_tokens"};
    static const char *const lists[] = {"models", "tenants", "domains", "sessions", "status"};
    static char memory[2][1 << 17];
    static unsigned turn;
    struct kvpool *kvpool = operator_connect(daemon);
    char *out = memory[turn++ % 2];
    size_t at = 0;

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        struct kvpool_result result;
        const struct kvpool_request list = {.verb = KVPOOL_LIST,
                                            .what = lists[i],
                                            .json = out + at,
                                            .json_max = sizeof(memory[0]) - at - 2};
        assert_int_equal(kvpool_call(kvpool, &list, &result), 0);
        at += result.num_bytes;
        out[at++] = '\n';
    }
    out[at] = '\0';
    kvpool_disconnect(kvpool);
    for (size_t i = 0; i < ARRAY_SIZE(growing); i++)
        numbers_hide(out, growing[i]);
    return out;
}

void lists_await(const struct daemon *daemon, const char *before)
{
    char *kept = strdup(before);
    uint64_t end = now_ms() + 5000;
    const char *now = lists_read(daemon);

    assert_non_null(kept);
    while (strcmp(now, kept) != 0 && now_ms() < end) {
        (void)usleep(10000);
        now = lists_read(daemon);
    }
    if (strcmp(now, kept) != 0) {
        print_error("before:\n%s\nafter:\n%s\n", kept, now);
        fail();
    }
    free(kept);
}

/* ---- latency -------------------------------------------------------------------------------- */

static double now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

double match_p99_us(struct kvpool *kvpool, uint32_t model, unsigned count)
{
    uint32_t tokens[64];
    double *times = calloc(count, sizeof(*times));

    assert_non_null(times);
    tokens_make(tokens, ARRAY_SIZE(tokens), 77);
    const struct kvpool_prompt prompt = {
        .model = model, .tokens = tokens, .num_tokens = ARRAY_SIZE(tokens)};
    for (unsigned i = 0; i < count; i++) {
        double begin = now_us();
        assert_int_equal(kvpool_match(kvpool, &prompt, NULL), 0);
        times[i] = now_us() - begin;
    }
    qsort(times, count, sizeof(*times), compare);
    double p99 = times[count - 1 - count / 100];
    free(times);
    return p99;
}

/* Two busy CPUs give a process its turn after some 20 ms: below that a ratio says nothing. */
void p99_assert(const char *what, double idle, double now)
{
    double bound = 50 * idle > 100000 ? 50 * idle : 100000;

    print_message("%s: p99 %.0f us, idle %.0f us\n", what, now, idle);
    assert_true(now < bound);
}
