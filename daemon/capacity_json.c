/*
 * daemon/capacity_json.c - a model's geometry from its Hugging Face config.json.
 *
 * What is not understood is refused: a number that is wrong is worse than none.
 */
#include "daemon/capacity_model.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MAX_FILE = 4 << 20 };

static int refuse(char out_error[CAPACITY_ERROR], const char *key, const char *expected)
{
    (void)snprintf(out_error, CAPACITY_ERROR, "%s: expected %s", key, expected);
    return -EINVAL;
}

/* The first of @names that is there and not null: 0, or -EINVAL where it is no count. */
static int read_count(const json_t *json, const char *const *names, uint64_t *out_count,
                      char out_error[CAPACITY_ERROR])
{
    for (; *names; names++) {
        const json_t *value = json_object_get(json, *names);
        if (!value || json_is_null(value))
            continue;
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > INT32_MAX)
            return refuse(out_error, *names, "a number");
        *out_count = (uint64_t)json_integer_value(value);
        return 0;
    }
    return 0;
}

#define COUNT(json, out, error, ...)                                                               \
    read_count(json, (const char *const[]){__VA_ARGS__, NULL}, out, error)

/* ---- which layers see everything, and which a window ------------------------------------------
 */

static bool is_model(const json_t *json, const char *prefix)
{
    const char *type = json_string_value(json_object_get(json, "model_type"));

    return type && strncmp(type, prefix, strlen(prefix)) == 0;
}

/* Each layer's own word: 0, or -EINVAL for a kind that has no K and V as we know them. */
static int read_layer_types(const json_t *types, uint64_t num_layers, uint64_t *out_sliding,
                            char out_error[CAPACITY_ERROR])
{
    uint64_t sliding = 0;

    if (!json_is_array(types) || json_array_size(types) != num_layers)
        return refuse(out_error, "layer_types", "one word for each layer");
    for (size_t i = 0; i < num_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type && strcmp(type, "sliding_attention") == 0)
            sliding++;
        else if (!type || strcmp(type, "full_attention") != 0)
            return refuse(out_error, "layer_types", "full_attention or sliding_attention only");
    }
    *out_sliding = sliding;
    return 0;
}

/* Layers in a window: by layer_types, else by a pattern, else by what the model type means. */
static int count_sliding(const json_t *json, uint64_t num_layers, uint64_t *out_sliding,
                         char out_error[CAPACITY_ERROR])
{
    const json_t *types = json_object_get(json, "layer_types");
    const json_t *uses = json_object_get(json, "use_sliding_window");
    uint64_t pattern = 0, full = 0;

    if (types && !json_is_null(types))
        return read_layer_types(types, num_layers, out_sliding, out_error);
    if (uses && !json_is_true(uses)) {
        *out_sliding = 0;
        return 0;
    }
    int err = COUNT(json, &pattern, out_error, "sliding_window_pattern", "_sliding_window_pattern");
    if (!err)
        err = COUNT(json, &full, out_error, "max_window_layers"); /* the first ones see all */
    if (err)
        return err;
    if (pattern == 0)
        pattern = is_model(json, "gemma3") ? 6 : is_model(json, "gemma2") ? 2 : 0;
    if (pattern > 0) /* every so-many-th sees all */
        *out_sliding = num_layers - num_layers / pattern;
    else
        *out_sliding = full < num_layers ? num_layers - full : 0;
    return 0;
}

/* ---- the model --------------------------------------------------------------------------------
 */

static int read_heads(const json_t *json, struct capacity_group *out,
                      char out_error[CAPACITY_ERROR])
{
    uint64_t heads = 0, hidden = 0, rank = 0, rope = 0;
    int err = COUNT(json, &heads, out_error, "num_attention_heads", "n_head", "n_heads");

    if (!err)
        err = COUNT(json, &hidden, out_error, "hidden_size", "n_embd", "d_model");
    if (!err)
        err = COUNT(json, &rank, out_error, "kv_lora_rank");
    if (!err)
        err = COUNT(json, &rope, out_error, "qk_rope_head_dim");
    if (err)
        return err;
    if (rank > 0) { /* MLA: one vector a token, which K and V are made from */
        *out = (struct capacity_group){.kv_heads = 1, .k_dim = rank + rope};
        return 0;
    }
    out->kv_heads = heads;
    out->k_dim = heads > 0 ? hidden / heads : 0;
    err = COUNT(json, &out->kv_heads, out_error, "num_key_value_heads");
    if (!err)
        err = COUNT(json, &out->k_dim, out_error, "head_dim");
    out->v_dim = out->k_dim;
    if (!err && (out->kv_heads == 0 || out->k_dim == 0))
        return refuse(out_error, "num_key_value_heads, head_dim",
                      "them, or num_attention_heads and hidden_size");
    return err;
}

static void add_group(struct capacity_model *model, struct capacity_group shape, uint64_t layers,
                      uint64_t window)
{
    if (layers == 0)
        return;
    shape.layers = layers;
    shape.window = window;
    model->groups[model->num_groups++] = shape;
}

/* @top: the whole file, which has the dtype where @json, a part of it, has none. */
static uint64_t read_dtype(const json_t *json, const json_t *top)
{
    static const char *const names[] = {"torch_dtype", "dtype"};

    for (size_t i = 0; i < 4; i++) {
        const char *dtype = json_string_value(json_object_get(i < 2 ? json : top, names[i % 2]));
        if (dtype)
            return capacity_dtype_bytes(dtype);
    }
    return 0;
}

static int read_model(const json_t *json, const json_t *top, struct capacity_model *out_model,
                      char out_error[CAPACITY_ERROR])
{
    struct capacity_group shape = {0};
    uint64_t layers = 0, window = 0, sliding = 0;

    int err = COUNT(json, &layers, out_error, "num_hidden_layers", "n_layer", "n_layers");
    if (!err && (layers == 0 || layers > CAPACITY_MAX_LAYERS))
        err = refuse(out_error, "num_hidden_layers", "1 to 512");
    if (!err)
        err = COUNT(json, &window, out_error, "sliding_window");
    if (!err)
        err = read_heads(json, &shape, out_error);
    if (!err)
        err = count_sliding(json, layers, &sliding, out_error);
    if (err)
        return err;
    if (window == 0 && json_is_array(json_object_get(json, "layer_types")) && sliding > 0)
        return refuse(out_error, "sliding_window", "the tokens of the window");
    if (window == 0)
        sliding = 0;
    *out_model = (struct capacity_model){.value_bytes = read_dtype(json, top)};
    add_group(out_model, shape, layers - sliding, 0);
    add_group(out_model, shape, sliding, window);
    return 0;
}

int capacity_read_json(const char *path, struct capacity_model *out_model,
                       char out_error[CAPACITY_ERROR])
{
    static char bytes[MAX_FILE + 1];
    json_error_t error;

    FILE *file = fopen(path, "re");
    if (!file) {
        int err = -errno;
        (void)snprintf(out_error, CAPACITY_ERROR, "%.120s: %s", path, strerror(-err));
        return err;
    }
    size_t num_bytes = fread(bytes, 1, sizeof(bytes), file);
    bool is_whole = !ferror(file) && num_bytes <= MAX_FILE;
    (void)fclose(file);
    if (!is_whole)
        return refuse(out_error, path, "a file of at most 4 MiB that can be read");

    json_t *json = json_loadb(bytes, num_bytes, 0, &error);
    if (!json) {
        (void)snprintf(out_error, CAPACITY_ERROR, "%.120s:%d: %.150s", path, error.line,
                       error.text);
        return -EINVAL;
    }
    const json_t *text = json_object_get(json, "text_config"); /* of a multimodal model */
    int err = read_model(json_is_object(text) ? text : json, json, out_model, out_error);
    json_decref(json);
    return err;
}
