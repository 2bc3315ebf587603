/*
 * client-lib/kvpool_command_bench.c - how fast does this daemon answer, from here?
 *
 * Match is asked, which changes nothing; and by ring the end of a step that there is not.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client-lib/kvpool_command.h"

struct bench {
    const struct command_line *line;
    struct kvpool *kvpool;
    struct kvpool_prompt prompt;
    uint32_t *tokens;
    double *latencies_us; /* of each request */
};

struct bench_result {
    double rate, p50_us, p99_us;
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void bench_sum_up(struct bench *bench, double total_us, struct bench_result *out)
{
    uint64_t num = bench->line->requests;

    qsort(bench->latencies_us, num, sizeof(double), compare);
    out->rate = (double)num * 1e6 / total_us;
    out->p50_us = bench->latencies_us[num / 2];
    out->p99_us = bench->latencies_us[num * 99 / 100];
}

/* Whether the daemon carried it out, or said that there is nothing to carry out. */
static bool is_answer(int status)
{
    return status == KVPOOL_OK || status == KVPOOL_NOT_FOUND;
}

static int bench_one_by_one(struct bench *bench, const struct kvpool_request *request,
                            struct bench_result *out)
{
    double begin_us = now_us();

    for (uint64_t i = 0; i < bench->line->requests; i++) {
        double start_us = now_us();
        int status = kvpool_call(bench->kvpool, request, NULL);
        if (!is_answer(status))
            return status;
        bench->latencies_us[i] = now_us() - start_us;
    }
    bench_sum_up(bench, now_us() - begin_us, out);
    return 0;
}

/* Keeps @depth outstanding. */
static int bench_pipelined(struct bench *bench, const struct kvpool_request *request,
                           struct bench_result *out)
{
    uint64_t sent = 0, done = 0, depth = bench->line->depth, num = bench->line->requests;
    double begin_us = now_us(), sent_us[KVPOOL_MAX_OUTSTANDING];

    while (done < num) {
        for (; sent < num && sent - done < depth; sent++) {
            uint64_t ticket;
            int status = kvpool_submit(bench->kvpool, request, &ticket);
            if (status)
                return status;
            sent_us[ticket % KVPOOL_MAX_OUTSTANDING] = now_us();
        }
        struct kvpool_result result;
        do {
            int err = kvpool_poll(bench->kvpool, -1, &result);
            if (err || result.status)
                return err ? err : result.status;
            bench->latencies_us[done++] =
                now_us() - sent_us[result.ticket % KVPOOL_MAX_OUTSTANDING];
        } while (done < num && sent - done > depth / 2);
    }
    bench_sum_up(bench, now_us() - begin_us, out);
    return 0;
}

static void result_print(const struct bench *bench, const char *name, uint64_t depth,
                         const struct bench_result *result)
{
    const char *format = bench->line->json
                             ? "{\"name\": \"%s\", \"depth\": %llu, \"per_second\": %.0f, "
                               "\"p50_us\": %.2f, \"p99_us\": %.2f}"
                             : "%-24s depth %-4llu %10.0f /s   p50 %8.1f us   p99 %8.1f us\n";
    printf(format, name, (unsigned long long)depth, result->rate, result->p50_us, result->p99_us);
}

static int bench_run(struct bench *bench)
{
    struct kvpool_request match = {.verb = KVPOOL_MATCH, .prompt = &bench->prompt};
    struct kvpool_request ring = {.verb = KVPOOL_END_STEP, .via_ring = true};
    struct bench_result results[3];

    int status = bench_one_by_one(bench, &match, &results[0]);
    if (!status)
        status = bench_pipelined(bench, &match, &results[1]);
    if (!status)
        status = bench_one_by_one(bench, &ring, &results[2]);
    if (status)
        return command_fail(bench->line, status, kvpool_message(bench->kvpool));

    bool json = bench->line->json;
    if (json)
        printf("[");
    result_print(bench, "match, message", 1, &results[0]);
    if (json)
        printf(", ");
    result_print(bench, "match, messages", bench->line->depth, &results[1]);
    if (json)
        printf(", ");
    result_print(bench, "end of no step, ring", 1, &results[2]);
    if (json)
        printf("]\n");
    return EXIT_DONE;
}

/* A model of no engine's, so that nothing is found and nobody's cache is counted. */
static int bench_register(struct bench *bench)
{
    static const uint16_t layer = 0;
    const struct kvpool_layer_group group = {0, &layer, 1};
    const struct kvpool_model model = {.name = "kvpool bench",
                                       .weights_revision = "1",
                                       .num_layers = 1,
                                       .groups = &group,
                                       .num_groups = 1,
                                       .num_q_heads = 1,
                                       .num_kv_heads = 1,
                                       .k_head_dim = 64,
                                       .v_head_dim = 64,
                                       .dtype = KVPOOL_F16};
    return kvpool_register_model(bench->kvpool, &model, &bench->prompt.model, NULL);
}

int command_bench(const struct command_line *line)
{
    char message[KVPOOL_MAX_MESSAGE] = "";
    struct bench bench = {.line = line};
    struct kvpool_options options = {.struct_bytes = sizeof(options),
                                     .dir = line->dir,
                                     .token = line->token,
                                     .connect_ms = 1,
                                     .deadline_ms = line->timeout_ms,
                                     .out_message = message};

    if (line->requests == 0 || line->depth == 0 || line->depth > KVPOOL_MAX_OUTSTANDING)
        return command_fail(line, -EINVAL, "--requests from 1, --depth from 1 to 256");
    bench.tokens = calloc(line->tokens + 1, sizeof(*bench.tokens));
    bench.latencies_us = calloc(line->requests, sizeof(*bench.latencies_us));
    int code;
    if (!bench.tokens || !bench.latencies_us) {
        code = command_fail(line, -ENOMEM, "too many requests or tokens");
        goto out;
    }
    for (uint64_t i = 0; i < line->tokens; i++)
        bench.tokens[i] = (uint32_t)(i * 2654435761U >> 8);
    bench.prompt.tokens = bench.tokens;
    bench.prompt.num_tokens = line->tokens;

    int status = kvpool_connect(&options, &bench.kvpool);
    if (status) {
        code = command_fail(line, status, message);
        goto out;
    }
    status = bench_register(&bench);
    code = status ? command_fail(line, status, kvpool_message(bench.kvpool)) : bench_run(&bench);

out:
    kvpool_disconnect(bench.kvpool);
    free(bench.tokens);
    free(bench.latencies_us);
    return code;
}
