/* client-lib/example.c - an engine in miniature: two continuations of one prompt, computed once. */
#include <kvpool.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 2, Q_HEADS = 4, KV_HEADS = 2, DIM = 64, PROMPT = 40 };

static int check(struct kvpool *pool, const char *what, int status)
{
    if (status)
        fprintf(stderr, "%s: %s: %s\n", what, kvpool_status_name(status), kvpool_message(pool));
    return status;
}

/* One forward pass: @tokens are appended to @sequence, layer by layer. */
static int forward(struct kvpool *pool, uint64_t sequence, const uint32_t *tokens, uint32_t num)
{
    struct kvpool_row row = {.sequence = sequence, .tokens = tokens, .num_tokens = num};
    struct kvpool_attend attend = {.dtype = KVPOOL_F32};
    uint64_t num_bytes, q_bytes = num * Q_HEADS * DIM * sizeof(float);
    uint64_t kv_bytes = num * KV_HEADS * DIM * sizeof(float);
    unsigned char *staging = kvpool_staging(pool, &num_bytes);

    kvpool_staging_reset(pool);
    if (kvpool_staging_take(pool, q_bytes, &attend.q_offset) ||
        kvpool_staging_take(pool, kv_bytes, &attend.k_offset) ||
        kvpool_staging_take(pool, kv_bytes, &attend.v_offset) ||
        kvpool_staging_take(pool, q_bytes, &attend.out_offset) ||
        check(pool, "step", kvpool_step(pool, &row, 1, &attend.step)))
        return 1;
    for (attend.layer = 0; attend.layer < LAYERS; attend.layer++) {
        /* An engine projects this layer's input to q, k and v here. */
        memset(staging + attend.q_offset, 0, q_bytes);
        memset(staging + attend.k_offset, 0, kv_bytes);
        memset(staging + attend.v_offset, 0, kv_bytes);
        if (check(pool, "attend", kvpool_attend(pool, &attend)))
            return 1;
        /* And goes on with [row][q_head][dim] at staging + attend.out_offset. */
    }
    return 0; /* the last layer committed the step */
}

int main(void)
{
    static const uint16_t layers[LAYERS] = {0, 1};
    const struct kvpool_layer_group group = {.layers = layers, .num_layers = LAYERS};
    const struct kvpool_model model = {.name = "example",
                                       .weights_revision = "1",
                                       .num_layers = LAYERS,
                                       .groups = &group,
                                       .num_groups = 1,
                                       .num_q_heads = Q_HEADS,
                                       .num_kv_heads = KV_HEADS,
                                       .k_head_dim = DIM,
                                       .v_head_dim = DIM,
                                       .dtype = KVPOOL_F32};
    uint32_t tokens[PROMPT], handle, next[] = {100, 200};
    char why[KVPOOL_MAX_MESSAGE];
    struct kvpool_options options = {.struct_bytes = sizeof(options), .out_message = why};
    struct kvpool *pool;

    int status = kvpool_connect(&options, &pool);
    if (status) {
        fprintf(stderr, "no daemon: %s: %s\n", kvpool_status_name(status), why);
        return 1;
    }
    for (uint32_t i = 0; i < PROMPT; i++)
        tokens[i] = i;
    status = check(pool, "register", kvpool_register_model(pool, &model, &handle, NULL));

    /* The prompt, as sequence 1. What anybody of our tenant computed before is not computed again.
     */
    struct kvpool_prompt prompt = {.model = handle, .tokens = tokens, .num_tokens = PROMPT};
    struct kvpool_allocate_options unfilled = {.unfilled = true};
    struct kvpool_result found;
    if (!status)
        status = check(pool, "allocate", kvpool_allocate(pool, 1, &prompt, &unfilled, &found));
    if (!status)
        status = forward(pool, 1, tokens + found.matched, PROMPT - (uint32_t)found.matched);

    /* Two continuations: sequence 2 shares all of the prompt's blocks, and costs nothing yet. */
    if (!status)
        status = check(pool, "fork", kvpool_fork(pool, 1, 2));
    for (uint64_t sequence = 1; !status && sequence <= 2; sequence++)
        status = forward(pool, sequence, &next[sequence - 1], 1) ||
                 check(pool, "release", kvpool_release(pool, sequence));
    if (!status)
        printf("%llu of %d tokens were cached\n", (unsigned long long)found.matched, PROMPT);
    kvpool_disconnect(pool); /* lets go of whatever is left */
    return status != 0;
}
