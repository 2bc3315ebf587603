/* proto/key_fingerprint.c - the model fingerprint, from one table of typed fields. */
#include "proto/key.h"
#include "proto/key_hash.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

enum field_type {
    FIELD_BYTES,  /* struct key_bytes: as they are */
    FIELD_U32,    /* uint32_t: 4 bytes LE */
    FIELD_U64,    /* uint64_t: 8 bytes LE */
    FIELD_F64,    /* double: IEEE 754, 8 bytes LE */
    FIELD_SHARD,  /* struct key_shard: u32 ranks, then u32 rank if one registers its own part */
    FIELD_GROUPS, /* groups, num_groups: of each u8 kind, u32 window, u32 count, u32 a layer */
};

/* Whose registration is refused without it. */
enum field_need {
    OPTIONAL = 0,
    OF_ATTENDED = 1,
    OF_OPAQUE = 2,
    OF_ALL = OF_ATTENDED | OF_OPAQUE,
};

/*
 * Every field, once, by ascending tag. proto/KEYS.md shows the same table. A tag is never used
 * again for anything else: that would give two identities the same bytes.
 */
/* clang-format off */
#define AT(member) offsetof(struct key_model, member)
static const struct field {
    uint8_t tag;
    enum field_type type;
    size_t offset;
    enum field_need need;
} fields[] = {
    { 1, FIELD_BYTES,  AT(name),               OF_ALL},
    { 2, FIELD_BYTES,  AT(weights_revision),   OF_ALL},
    { 3, FIELD_U32,    AT(num_layers),         OF_ATTENDED},
    { 4, FIELD_GROUPS, AT(groups),             OF_ATTENDED},
    { 5, FIELD_U32,    AT(num_kv_heads),       OF_ATTENDED},
    { 6, FIELD_U32,    AT(k_head_dim),         OF_ATTENDED},
    { 7, FIELD_U32,    AT(v_head_dim),         OPTIONAL},
    { 8, FIELD_BYTES,  AT(dtype),              OF_ATTENDED},
    { 9, FIELD_U32,    AT(block_tokens),       OF_ALL},
    {10, FIELD_BYTES,  AT(rope_kind),          OPTIONAL},
    {11, FIELD_F64,    AT(rope_theta),         OPTIONAL},
    {12, FIELD_U32,    AT(rope_dims),          OPTIONAL},
    {13, FIELD_BYTES,  AT(rope_scaling),       OPTIONAL},
    {14, FIELD_SHARD,  AT(tp),                 OPTIONAL},
    {15, FIELD_SHARD,  AT(pp),                 OPTIONAL},
    {16, FIELD_SHARD,  AT(cp),                 OPTIONAL},
    {17, FIELD_BYTES,  AT(layout_name),        OF_OPAQUE},
    {18, FIELD_U32,    AT(layout_version),     OPTIONAL},
    {19, FIELD_U64,    AT(opaque_block_bytes), OF_OPAQUE},
};
#undef AT
/* clang-format on */

enum {
    NUM_FIELDS = sizeof(fields) / sizeof(fields[0]),
    GROUP_FIXED_BYTES = 1 + 4 + 4 /* of a group, before its layers */
};

static uint32_t groups_bytes(const struct key_model *model)
{
    uint32_t num_bytes = 0; /* fits: KEY_MAX_LAYERS layers, each in one group */

    for (size_t i = 0; i < model->num_groups; i++)
        num_bytes += GROUP_FIXED_BYTES + model->groups[i].num_layers * (uint32_t)sizeof(uint32_t);
    return num_bytes;
}

static bool group_is_valid(const struct key_layer_group *group, uint32_t num_layers)
{
    if (group->kind != KEY_GROUP_FULL && group->kind != KEY_GROUP_SLIDING)
        return false;
    if ((group->kind == KEY_GROUP_SLIDING) != (group->window > 0))
        return false;
    if (!group->layers || !group->num_layers)
        return false;
    for (uint32_t i = 0; i < group->num_layers; i++)
        if (group->layers[i] >= num_layers || (i && group->layers[i] <= group->layers[i - 1]))
            return false;
    return true;
}

static bool groups_are_valid(const struct key_model *model)
{
    uint32_t num_left =
        model->num_layers; /* a layer is in one group, which also bounds this loop */

    if (model->num_layers > KEY_MAX_LAYERS || (model->num_groups && !model->groups))
        return false;
    for (size_t i = 0; i < model->num_groups; i++) {
        const struct key_layer_group *group = &model->groups[i];

        if (group->num_layers > num_left || !group_is_valid(group, model->num_layers))
            return false;
        num_left -= group->num_layers;
    }
    return true;
}

static bool field_is_valid(const struct field *field, const struct key_model *model)
{
    const void *at = (const char *)model + field->offset;
    const struct key_shard *shard = at;

    switch (field->type) {
    case FIELD_BYTES:
        return key_bytes_is_valid(at);
    case FIELD_F64:
        return isfinite(*(const double *)at) && *(const double *)at >= 0;
    case FIELD_SHARD:
        return !shard->has_rank || shard->rank < (shard->num_ranks ? shard->num_ranks : 1);
    case FIELD_GROUPS:
        return groups_are_valid(model);
    case FIELD_U32:
    case FIELD_U64:
        break;
    }
    return true;
}

/* Would leaving the field out say the same? A mandatory field may not be absent, nor an empty
 * string. */
static bool field_is_absent(const struct field *field, const struct key_model *model)
{
    const void *at = (const char *)model + field->offset;

    switch (field->type) {
    case FIELD_BYTES:
        return !((const struct key_bytes *)at)->bytes;
    case FIELD_U32:
        return *(const uint32_t *)at == 0;
    case FIELD_U64:
        return *(const uint64_t *)at == 0;
    case FIELD_F64:
        return *(const double *)at == 0;
    case FIELD_SHARD:
        return false; /* always written: a forgotten one and a single rank are the same */
    case FIELD_GROUPS:
        return model->num_groups == 0;
    }
    assert(!"a field type without a case");
    return true;
}

static bool field_is_missing(const struct field *field, const struct key_model *model)
{
    const enum field_need kind = model->opaque_block_bytes ? OF_OPAQUE : OF_ATTENDED;
    const void *at = (const char *)model + field->offset;

    if (!(field->need & kind))
        return false;
    return field_is_absent(field, model) ||
           (field->type == FIELD_BYTES && ((const struct key_bytes *)at)->num_bytes == 0);
}

static bool model_is_valid(const struct key_model *model)
{
    for (size_t i = 0; i < NUM_FIELDS; i++)
        if (!field_is_valid(&fields[i], model) || field_is_missing(&fields[i], model))
            return false;
    return model->block_tokens <= KEY_MAX_BLOCK_TOKENS;
}

static void groups_add(struct key_hasher *hasher, uint8_t tag, const struct key_model *model)
{
    fields_open(hasher, tag, groups_bytes(model));
    for (size_t i = 0; i < model->num_groups; i++) {
        const struct key_layer_group *group = &model->groups[i];
        const uint8_t kind = (uint8_t)group->kind;

        hash_append(hasher, &kind, sizeof(kind));
        hash_append(hasher, &group->window, sizeof(group->window));
        hash_append(hasher, &group->num_layers, sizeof(group->num_layers));
        hash_append(hasher, group->layers, group->num_layers * sizeof(group->layers[0]));
    }
}

static void field_add(struct key_hasher *hasher, const struct field *field,
                      const struct key_model *model)
{
    const void *at = (const char *)model + field->offset;
    const struct key_bytes *string = at;
    const struct key_shard *shard = at;

    switch (field->type) {
    case FIELD_BYTES:
        fields_add(hasher, field->tag, string->bytes, string->num_bytes);
        break;
    case FIELD_U32:
        fields_add(hasher, field->tag, at, sizeof(uint32_t));
        break;
    case FIELD_U64:
    case FIELD_F64:
        fields_add(hasher, field->tag, at, sizeof(uint64_t));
        break;
    case FIELD_SHARD: {
        const uint32_t words[] = {shard->num_ranks ? shard->num_ranks : 1, shard->rank};
        fields_add(hasher, field->tag, words, sizeof(words[0]) * (shard->has_rank ? 2 : 1));
        break;
    }
    case FIELD_GROUPS:
        groups_add(hasher, field->tag, model);
        break;
    }
}

int key_fingerprint(struct key_hasher *hasher, const struct key_model *model,
                    struct key_fingerprint *out_fingerprint)
{
    if (!model_is_valid(model))
        return -EINVAL;

    hash_begin(hasher);
    for (size_t i = 0; i < NUM_FIELDS; i++)
        if (!field_is_absent(&fields[i], model))
            field_add(hasher, &fields[i], model);
    return hash_end(hasher, "kvm1", out_fingerprint->bytes);
}
