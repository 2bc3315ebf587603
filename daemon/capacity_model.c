/* daemon/capacity_model.c - bytes of blocks, by the granules that the daemon would choose. */
#include "daemon/capacity_model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MAX_HEADS = 4096, MAX_DIM = 65536, MAX_BLOCK_TOKENS = 65535, MAX_CONTEXT = 1 << 30 };
#define MAX_POOL_BYTES (UINT64_C(1) << 50)

uint64_t capacity_dtype_bytes(const char *name)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } dtypes[] = {{"f32", 4},     {"float32", 4}, {"f16", 2},
                  {"float16", 2}, {"bf16", 2},    {"bfloat16", 2}};
    static const char prefix[] = "torch.";

    if (strncmp(name, prefix, sizeof(prefix) - 1) == 0)
        name += sizeof(prefix) - 1;
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].bytes;
    return 0;
}

static uint64_t divide_up(uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

static bool is_within(uint64_t value, uint64_t least, uint64_t most)
{
    return value >= least && value <= most;
}

static int check(const struct capacity_model *model, const struct capacity_memory *memory,
                 char out_error[CAPACITY_ERROR])
{
    const char *wrong = NULL;

    if (model->num_groups == 0)
        wrong = "no layers";
    else if (model->value_bytes == 0)
        wrong = "the dtype is not known: expected f16, bf16 or f32";
    else if (!is_within(memory->block_tokens, 1, MAX_BLOCK_TOKENS))
        wrong = "block tokens: expected 1 to 65535";
    else if (!is_within(memory->context, 1, MAX_CONTEXT))
        wrong = "context: expected 1 to 1073741824 tokens";
    else if (!is_within(memory->page_bytes, 4096, 1 << 30) ||
             (memory->page_bytes & (memory->page_bytes - 1)) != 0)
        wrong = "page: expected a power of two from 4KiB to 1GiB";
    else if (!is_within(memory->bytes, memory->page_bytes, MAX_POOL_BYTES))
        wrong = "bytes: expected one page to 1024TiB";
    for (size_t i = 0; i < model->num_groups && !wrong; i++) {
        const struct capacity_group *group = &model->groups[i];
        if (!is_within(group->layers, 1, CAPACITY_MAX_LAYERS))
            wrong = "layers: expected 1 to 512";
        else if (!is_within(group->kv_heads, 1, MAX_HEADS))
            wrong = "KV heads: expected 1 to 4096";
        else if (!is_within(group->k_dim, 1, MAX_DIM) || group->v_dim > MAX_DIM)
            wrong = "head dim: expected 1 to 65536";
        else if (group->window == 1 || group->window > MAX_CONTEXT)
            wrong = "window: expected 0 (full), or 2 to 1073741824 tokens";
    }
    if (wrong)
        (void)snprintf(out_error, CAPACITY_ERROR, "%s", wrong);
    return wrong ? -EINVAL : 0;
}

/* A window that ends anywhere in a block reaches into one more than it fills. */
static uint64_t sequence_blocks(const struct capacity_group *group,
                                const struct capacity_memory *memory)
{
    uint64_t all = divide_up(memory->context, memory->block_tokens);

    if (group->window == 0)
        return all;
    uint64_t seen = divide_up(group->window - 1, memory->block_tokens) + 1;
    return seen < all ? seen : all;
}

static int compute_group(const struct capacity_model *model, const struct capacity_group *group,
                         const struct capacity_memory *memory, struct capacity_group_result *out)
{
    out->token_bytes =
        group->layers * group->kv_heads * (group->k_dim + group->v_dim) * model->value_bytes;
    out->block_bytes = out->token_bytes * memory->block_tokens;
    out->sequence_blocks = sequence_blocks(group, memory);
    return gpu_choose_granule(out->block_bytes, memory->page_bytes, &out->granule);
}

/* Whether @count blocks of each group, or @count sequences, fit into @pages. */
static bool fits(const struct capacity_model *model, const struct capacity_result *result,
                 uint64_t count, uint64_t pages, bool is_sequences)
{
    for (size_t i = 0; i < model->num_groups; i++) {
        const struct capacity_group_result *group = &result->groups[i];
        uint64_t needed;
        if (__builtin_mul_overflow(count, is_sequences ? group->sequence_blocks : 1, &needed))
            return false;
        needed = needed / group->granule.slots + (needed % group->granule.slots != 0);
        if (__builtin_mul_overflow(needed, group->granule.pages, &needed) || needed > pages)
            return false;
        pages -= needed;
    }
    return true;
}

/* The largest count that fits: more never takes fewer pages, and one takes a byte at least. */
static uint64_t most(const struct capacity_model *model, const struct capacity_result *result,
                     const struct capacity_memory *memory, bool is_sequences)
{
    uint64_t low = 0, high = memory->bytes + 1, pages = memory->bytes / memory->page_bytes;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (fits(model, result, middle, pages, is_sequences))
            low = middle;
        else
            high = middle;
    }
    return low;
}

int capacity_compute(const struct capacity_model *model, const struct capacity_memory *memory,
                     struct capacity_result *out_result, char out_error[CAPACITY_ERROR])
{
    struct capacity_result result = {0};
    uint64_t padding_bytes = 0;

    int err = check(model, memory, out_error);
    if (err)
        return err;
    for (size_t i = 0; i < model->num_groups; i++) {
        struct capacity_group_result *group = &result.groups[i];
        err = compute_group(model, &model->groups[i], memory, group);
        if (err) {
            (void)snprintf(out_error, CAPACITY_ERROR, "a block of %llu bytes is too large",
                           (unsigned long long)group->block_bytes);
            return err;
        }
        result.token_bytes += group->token_bytes;
        padding_bytes += group->granule.padding_bytes;
        result.sequence_bytes += group->sequence_blocks * group->granule.stride_bytes;
    }
    result.token_lost_bytes = divide_up(padding_bytes, memory->block_tokens);
    result.tokens = most(model, &result, memory, false) * memory->block_tokens;
    result.sequences = most(model, &result, memory, true);
    *out_result = result;
    return 0;
}
