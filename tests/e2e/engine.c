/*
 * tests/e2e/engine.c - a small inference engine without a KV cache of its own.
 *
 * Its model is tests/e2e/toy.h. It prefills a system prompt and a question, decodes, forks into two
 * continuations that diverge, takes tokens back, is preempted, resumes, and releases. Each output
 * of the daemon is compared with dense attention. If the pool refuses, it lets go of what it holds
 * and comes back.
 */
#include "client-lib/kvpool.h"
#include "tests/e2e/engine_options.h"
#include "tests/e2e/toy.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 64, MAX_BATCH = 2, MAX_BLOCKS = TOY_MAX_TOKENS / 16, DEADLINE_S = 60 };

/* A sequence of the daemon's. Its tokens are fed to the model until outputs of all were checked. */
struct sequence {
    struct toy_text text;
    uint64_t number;
    uint32_t num_complete; /* the daemon has their K and V */
    uint32_t num_checked;  /* their outputs were compared */
    bool is_here;          /* allocated, not preempted */
};

static struct engine {
    struct options options;
    struct toy toy;
    struct kvpool *pool;
    struct sequence sequences[MAX_BATCH];
    unsigned char *staging;
    uint32_t model, num_groups;
    uint64_t block_bytes;               /* of the first group */
    double start_ms, pool_ms, first_ms; /* since; in calls of the pool; until the prompt was done */
    uint64_t num_computed, num_reused, num_outputs, num_refusals, num_preempted;
    uint32_t prompt_reused, num_blocks, num_shared, num_copied;
    double worst;
} engine;

static double now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "engine %s: ", engine.options.name);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    exit(1);
}

/* Whether @status is a refusal that passes; anything else that is not 0 ends the engine. */
static bool is_refused(const char *what, int status)
{
    if (status == 0)
        return false;
    if (status != KVPOOL_NO_BLOCKS && status != KVPOOL_QUOTA && status != KVPOOL_BUSY)
        die("%s: %s: %s (%s)", what, kvpool_status_name(status), kvpool_message(engine.pool),
            kvpool_status_text(status));
    if (now_ms() - engine.start_ms > DEADLINE_S * 1e3)
        die("%s: still refused after %d s: %s", what, DEADLINE_S, kvpool_status_name(status));
    engine.num_refusals++;
    return true;
}

/* A call of the pool, timed. */
#define POOL_CALL(call)                                                                            \
    __extension__({                                                                                \
        double before_ms_ = now_ms();                                                              \
        int status_ = (call);                                                                      \
        engine.pool_ms += now_ms() - before_ms_;                                                   \
        status_;                                                                                   \
    })

static void must(const char *what, int status)
{
    if (is_refused(what, status))
        die("%s: %s", what, kvpool_status_name(status));
}

/* ---- a forward pass ------------------------------------------------------------------------- */

struct part {
    struct sequence *sequence;
    uint32_t first, num;
};

static void layer_run(struct kvpool_attend *attend, const struct part *parts, uint32_t num_parts)
{
    uint64_t row_bytes = TOY_DIM * toy_value_bytes(&engine.toy), at = 0;

    for (uint32_t i = 0; i < num_parts; at += parts[i].num, i++) {
        const struct part *part = &parts[i];
        const struct toy_text *text = &part->sequence->text;
        toy_queries(&engine.toy, text, attend->layer, part->first, part->num,
                    engine.staging + attend->q_offset + at * TOY_Q_HEADS * row_bytes);
        toy_keys(&engine.toy, text, attend->layer, part->first, part->num,
                 engine.staging + attend->k_offset + at * TOY_KV_HEADS * row_bytes);
        toy_values(&engine.toy, text, attend->layer, part->first, part->num,
                   engine.staging + attend->v_offset + at * TOY_KV_HEADS * row_bytes);
    }
    must("attend", POOL_CALL(kvpool_attend(engine.pool, attend)));
    at = 0;
    for (uint32_t i = 0; i < num_parts; at += parts[i].num, i++) {
        double error = toy_compare(
            &engine.toy, &parts[i].sequence->text, attend->layer, parts[i].first, parts[i].num,
            engine.staging + attend->out_offset + at * TOY_Q_HEADS * row_bytes);
        engine.worst = fmax(engine.worst, error);
        if (!(error <= toy_bound(&engine.toy)))
            die("layer %u of tokens %u .. %u: off by %g, more than %g", attend->layer,
                parts[i].first, parts[i].first + parts[i].num - 1, error, toy_bound(&engine.toy));
    }
}

/* Brings @parts into the daemon and checks what it makes of them. False: it has no room. */
static bool forward(const struct part *parts, uint32_t num_parts)
{
    struct kvpool_attend attend = {.dtype = engine.toy.is_f16 ? KVPOOL_F16 : KVPOOL_F32};
    struct kvpool_row rows[MAX_BATCH];
    uint64_t num = 0, row_bytes = TOY_DIM * toy_value_bytes(&engine.toy);

    for (uint32_t i = 0; i < num_parts; num += parts[i].num, i++)
        rows[i] = (struct kvpool_row){.sequence = parts[i].sequence->number,
                                      .tokens = parts[i].sequence->text.tokens + parts[i].first,
                                      .num_tokens = parts[i].num};
    if (is_refused("step", POOL_CALL(kvpool_step(engine.pool, rows, num_parts, &attend.step))))
        return false;
    kvpool_staging_reset(engine.pool);
    if (kvpool_staging_take(engine.pool, num * TOY_Q_HEADS * row_bytes, &attend.q_offset) ||
        kvpool_staging_take(engine.pool, num * TOY_KV_HEADS * row_bytes, &attend.k_offset) ||
        kvpool_staging_take(engine.pool, num * TOY_KV_HEADS * row_bytes, &attend.v_offset) ||
        kvpool_staging_take(engine.pool, num * TOY_Q_HEADS * row_bytes, &attend.out_offset))
        die("staging is too small");
    for (attend.layer = 0; attend.layer < TOY_LAYERS; attend.layer++)
        layer_run(&attend, parts, num_parts);
    for (uint32_t i = 0; i < num_parts; i++) { /* the last layer committed the step */
        struct sequence *sequence = parts[i].sequence;
        sequence->num_complete += parts[i].num;
        if (sequence->num_checked < sequence->num_complete)
            sequence->num_checked = sequence->num_complete;
    }
    engine.num_computed += num;
    engine.num_outputs += num * TOY_LAYERS * TOY_Q_HEADS * TOY_DIM;
    return true;
}

/* ---- sequences ------------------------------------------------------------------------------ */

static void came(struct sequence *sequence, const struct kvpool_result *result)
{
    sequence->is_here = true;
    sequence->num_complete = (uint32_t)result->matched;
    engine.num_reused += result->matched;
}

/* False: there is no room now. */
static bool allocate(struct sequence *sequence)
{
    const struct toy_text *text = &sequence->text;
    const struct kvpool_prompt prompt = {
        .model = engine.model, .tokens = text->tokens, .num_tokens = text->num};
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    struct kvpool_result result;

    must("match", POOL_CALL(kvpool_match(engine.pool, &prompt, &result)));
    if (result.arriving > 0) { /* somebody is at it: whatever the answer, allocate */
        int status = POOL_CALL(kvpool_wait_arriving(engine.pool, &prompt, 2000, NULL));
        if (status != KVPOOL_MISS && status != KVPOOL_TIMEOUT)
            must("wait", status);
    }
    if (is_refused("allocate", POOL_CALL(kvpool_allocate(engine.pool, sequence->number, &prompt,
                                                         &unfilled, &result))))
        return false;
    came(sequence, &result);
    return true;
}

static bool resume(struct sequence *sequence)
{
    const struct kvpool_allocate_options unfilled = {.unfilled = true};
    struct kvpool_result result;

    if (is_refused("resume",
                   POOL_CALL(kvpool_resume(engine.pool, sequence->number, &unfilled, &result))))
        return false;
    came(sequence, &result);
    return true;
}

static void preempt(struct sequence *sequence)
{
    must("preempt", POOL_CALL(kvpool_preempt(engine.pool, sequence->number)));
    sequence->is_here = false;
    sequence->num_complete = 0;
}

/* Lets others go first: of ours, nothing is held meanwhile, so that somebody always gets on. */
static void give_way(void)
{
    for (uint32_t i = 0; i < MAX_BATCH; i++)
        if (engine.sequences[i].is_here) {
            preempt(&engine.sequences[i]);
            engine.num_preempted++;
        }
    (void)usleep(1000 + (useconds_t)rand() % 20000);
}

/* Whether there is something to do for @sequence: feed it, or, if it @must_stay, bring it back. */
static bool is_due(const struct sequence *sequence, bool must_stay)
{
    return sequence->num_checked < sequence->text.num ||
           (must_stay && sequence->num_complete < sequence->text.num);
}

/* The next forward pass of those in @batch that are here, or can come. */
static uint32_t parts_make(struct sequence *const *batch, uint32_t num, bool must_stay,
                           struct part *out)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < num; i++) {
        struct sequence *sequence = batch[i];
        if (!is_due(sequence, must_stay) || (!sequence->is_here && !resume(sequence)))
            continue;
        uint32_t left = sequence->text.num - sequence->num_complete;
        out[count++] = (struct part){sequence, sequence->num_complete, left < CHUNK ? left : CHUNK};
    }
    return count;
}

/* Until outputs of all tokens of @batch were checked; @must_stay: and K and V of all are there. */
static void advance(struct sequence *const *batch, uint32_t num, bool must_stay)
{
    struct part parts[MAX_BATCH];

    for (;;) {
        bool has_work = false;
        for (uint32_t i = 0; i < num; i++)
            has_work |= is_due(batch[i], must_stay);
        if (!has_work)
            return;
        uint32_t count = parts_make(batch, num, must_stay, parts);
        while (count > 1 && !forward(parts, count)) { /* the first alone, perhaps */
            preempt(parts[--count].sequence);
            engine.num_preempted++;
        }
        if (count == 0 || (count == 1 && !forward(parts, 1)))
            give_way();
    }
}

/* ---- the day of an engine ------------------------------------------------------------------- */

static uint32_t token_make(uint32_t seed, uint32_t at)
{
    return (seed * 2654435761u + at * 40503u + 17u) % 50000u;
}

static void decode(struct sequence *const *batch, uint32_t num, uint32_t count)
{
    for (uint32_t at = 0; at < count; at++) {
        for (uint32_t i = 0; i < num; i++) /* each continuation has a mind of its own */
            toy_add(&batch[i]->text,
                    token_make(engine.options.seed + 7777u * i, batch[i]->text.num));
        advance(batch, num, false);
    }
}

static uint32_t table_take(const struct sequence *sequence, uint32_t slots[MAX_BLOCKS])
{
    static uint32_t windowed[MAX_BLOCKS];
    struct kvpool_table tables[2] = {{.slots = slots, .max = MAX_BLOCKS},
                                     {.slots = windowed, .max = MAX_BLOCKS}};
    const struct kvpool_request publish = {.verb = KVPOOL_PUBLISH,
                                           .sequence = sequence->number,
                                           .tables = tables,
                                           .num_tables = engine.num_groups};

    must("publish", kvpool_call(engine.pool, &publish, NULL));
    return tables[0].num;
}

/* Which blocks do the two continuations share, and which were copied when they diverged? */
static void tables_compare(struct sequence *const *both, uint32_t forked_at)
{
    uint32_t one[MAX_BLOCKS], two[MAX_BLOCKS];

    if (!both[0]->is_here || !both[1]->is_here)
        return; /* one had to give way */
    uint32_t num = table_take(both[0], one), other = table_take(both[1], two);
    engine.num_blocks = num + other;
    engine.num_shared = 0;
    for (uint32_t at = 0; at < num && at < other; at++)
        engine.num_shared += one[at] == two[at];
    engine.num_copied = (forked_at + 15) / 16 - engine.num_shared;
}

static void hold(void)
{
    puts("holding");
    (void)fflush(stdout);
    while (getchar() != EOF)
        ;
}

static void truncate_to(struct sequence *sequence, uint32_t length)
{
    advance(&sequence, 1, true);
    int status = POOL_CALL(kvpool_truncate(engine.pool, sequence->number, length));
    sequence->text.num = sequence->num_complete = sequence->num_checked = length;
    if (status != KVPOOL_INVALID || engine.toy.window == 0) {
        must("truncate", status);
        return;
    }
    must("release", POOL_CALL(kvpool_release(engine.pool, sequence->number)));
    sequence->is_here = false; /* blocks that it would read left the window: from the beginning */
    while (!allocate(sequence))
        give_way();
}

/* A prompt from system tokens that all engines know, and a question of our own. */
static void prompt_make(struct sequence *sequence, uint32_t round)
{
    const struct options *options = &engine.options;

    for (uint32_t at = 0; at < options->system_tokens; at++)
        toy_add(&sequence->text, token_make(options->system_seed, at));
    for (uint32_t at = 0; at < options->question_tokens; at++)
        toy_add(&sequence->text, token_make(options->seed + 101u * (round + 1), at));
}

static void question_answer(uint32_t round)
{
    struct sequence *one = &engine.sequences[0], *two = &engine.sequences[1];
    struct sequence *const both[] = {one, two};
    uint32_t num = engine.options.decode_tokens;

    *one = (struct sequence){.number = 2 * round + 1};
    prompt_make(one, round);
    double before_ms = engine.pool_ms;
    uint64_t before_reused = engine.num_reused;
    while (!allocate(one))
        give_way();
    advance(both, 1, false);
    engine.first_ms = engine.pool_ms - before_ms;
    engine.prompt_reused = (uint32_t)(engine.num_reused - before_reused);
    decode(both, 1, num);

    advance(both, 1, true);
    *two = *one;
    two->number = one->number + 1;
    must("fork", POOL_CALL(kvpool_fork(engine.pool, one->number, two->number)));
    uint32_t forked_at = one->text.num;
    decode(both, 2, num);
    tables_compare(both, forked_at);
    if (engine.options.hold)
        hold();

    truncate_to(two, two->text.num - num / 2 - 1); /* guessed wrong */
    decode(both, 2, num / 2 + 1);
    if (one->is_here)
        preempt(one); /* somebody more urgent came */
    decode(both, 2, 2);
    must("release", POOL_CALL(kvpool_release(engine.pool, one->number)));
    must("release", POOL_CALL(kvpool_release(engine.pool, two->number)));
    one->is_here = two->is_here = false;
}

/* ---- what it is told ------------------------------------------------------------------------ */

static void model_register(void)
{
    static const uint16_t layers[TOY_LAYERS] = {0, 1, 2};
    const bool has_window = engine.toy.window > 0;
    const struct kvpool_layer_group groups[] = {
        {.layers = layers, .num_layers = has_window ? TOY_LAYERS - 1 : TOY_LAYERS},
        {.layers = layers + TOY_LAYERS - 1, .num_layers = 1, .window = engine.toy.window}};
    const struct kvpool_model model = {.name = "toy",
                                       .weights_revision = "1",
                                       .num_layers = TOY_LAYERS,
                                       .groups = groups,
                                       .num_groups = has_window ? 2 : 1,
                                       .num_q_heads = TOY_Q_HEADS,
                                       .num_kv_heads = TOY_KV_HEADS,
                                       .k_head_dim = TOY_DIM,
                                       .v_head_dim = TOY_DIM,
                                       .dtype = engine.toy.is_f16 ? KVPOOL_F16 : KVPOOL_F32};

    struct kvpool_model_shape shape;
    engine.num_groups = model.num_groups;
    must("register", kvpool_register_model(engine.pool, &model, &engine.model, &shape));
    engine.block_bytes = shape.block_bytes[0];
}

static void connect_to_pool(void)
{
    char message[KVPOOL_MAX_MESSAGE] = "";
    uint64_t num_bytes;
    const struct kvpool_options options = {.struct_bytes = sizeof(options),
                                           .dir = engine.options.dir,
                                           .token = engine.options.token,
                                           .flags = engine.options.by_socket ? KVPOOL_NO_RINGS : 0,
                                           .out_message = message};

    int status = kvpool_connect(&options, &engine.pool);
    if (status)
        die("connect: %s: %s", kvpool_status_name(status), message);
    engine.staging = kvpool_staging(engine.pool, &num_bytes);
}

/* One line of name=value, for scripts. prompt, cached, first_ms, blocks, shared and copied: of the
 * last question's. */
static void result_print(void)
{
    const struct options *options = &engine.options;

    printf("done name=%s dtype=%s prompt=%u cached=%u computed=%lu reused=%lu first_ms=%.2f ",
           options->name, options->dtype, options->system_tokens + options->question_tokens,
           engine.prompt_reused, engine.num_computed, engine.num_reused, engine.first_ms);
    printf("blocks=%u shared=%u copied=%u block_bytes=%lu outputs=%lu worst=%.1e bound=%.0e ",
           engine.num_blocks, engine.num_shared, engine.num_copied, engine.block_bytes,
           engine.num_outputs, engine.worst, toy_bound(&engine.toy));
    printf("refusals=%lu preempted=%lu pool_ms=%.1f total_ms=%.1f\n", engine.num_refusals,
           engine.num_preempted, engine.pool_ms, now_ms() - engine.start_ms);
}

int main(int argc, char **argv)
{
    (void)argc;
    options_parse(argv, &engine.options);
    engine.toy = (struct toy){.is_f16 = engine.options.is_f16, .window = engine.options.window};
    srand(engine.options.seed);
    engine.start_ms = now_ms();
    connect_to_pool();
    model_register();
    for (uint32_t round = 0; round < engine.options.rounds; round++)
        question_answer(round);
    kvpool_disconnect(engine.pool);
    result_print();
    return 0;
}
