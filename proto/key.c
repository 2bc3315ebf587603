/* proto/key.c - typed fields, root keys, and the checks in front of every chain of block keys. */
#include "proto/key.h"
#include "proto/key_hash.h"

#include <errno.h>
#include <openssl/sha.h>

/* Never change one: it would give the same bytes to two identities. proto/KEYS.md lists them. */
enum root_tag {
    ROOT_DOMAIN_SECRET = 1,
    ROOT_MODEL_FINGERPRINT = 2,
    ROOT_ADAPTER_ID = 3,
    ROOT_ADAPTER_GENERATION = 4,
    ROOT_ENGINE_SALT = 5,
};

void fields_open(struct key_hasher *hasher, uint8_t tag, uint32_t num_bytes)
{
    hash_append(hasher, &tag, sizeof(tag));
    hash_append(hasher, &num_bytes, sizeof(num_bytes));
}

void fields_add(struct key_hasher *hasher, uint8_t tag, const void *bytes, size_t num_bytes)
{
    fields_open(hasher, tag, (uint32_t)num_bytes);
    hash_append(hasher, bytes, num_bytes);
}

bool key_bytes_is_valid(const struct key_bytes *string)
{
    return string->bytes ? string->num_bytes <= KEY_MAX_FIELD_BYTES : string->num_bytes == 0;
}

int key_root(struct key_hasher *hasher, const struct key_root_fields *fields, struct key *out_root)
{
    if (!fields->domain_secret || !fields->model || !key_bytes_is_valid(&fields->adapter_id) ||
        !key_bytes_is_valid(&fields->engine_salt))
        return -EINVAL;

    hash_begin(hasher);
    fields_add(hasher, ROOT_DOMAIN_SECRET, fields->domain_secret, KEY_BYTES);
    fields_add(hasher, ROOT_MODEL_FINGERPRINT, fields->model->bytes, KEY_BYTES);
    if (fields->adapter_id.bytes)
        fields_add(hasher, ROOT_ADAPTER_ID, fields->adapter_id.bytes, fields->adapter_id.num_bytes);
    if (fields->has_adapter_generation)
        fields_add(hasher, ROOT_ADAPTER_GENERATION, &fields->adapter_generation,
                   sizeof(fields->adapter_generation));
    if (fields->engine_salt.bytes)
        fields_add(hasher, ROOT_ENGINE_SALT, fields->engine_salt.bytes,
                   fields->engine_salt.num_bytes);
    return hash_end(hasher, "kvr1", out_root->bytes);
}

static bool extras_are_valid(const struct key_prompt *prompt)
{
    if (prompt->num_extras && !prompt->extras)
        return false;
    for (size_t i = 0; i < prompt->num_extras; i++) {
        const struct key_extra *extra = &prompt->extras[i];

        if (extra->num_bytes > KEY_MAX_EXTRA_BYTES || (extra->num_bytes && !extra->bytes))
            return false;
        if (i && extra->block <= extra[-1].block)
            return false;
    }
    return true;
}

static bool prompt_is_valid(const struct key_prompt *prompt)
{
    if (prompt->block_tokens < 1 || prompt->block_tokens > KEY_MAX_BLOCK_TOKENS)
        return false;
    if (prompt->num_tokens > SIZE_MAX / sizeof(uint32_t))
        return false;
    if (prompt->num_tokens >= prompt->block_tokens &&
        (!prompt->parent || !prompt->tokens || !prompt->out))
        return false;
    if (prompt->num_tokens / prompt->block_tokens > UINT64_MAX - prompt->first_block)
        return false;
    return extras_are_valid(prompt);
}

int key_chain(struct key_hasher *hasher, const struct key_prompt *prompt)
{
    return key_chains(hasher, prompt, 1);
}

/*
 * One prompt after the other. Interleaving two would buy little: a single chain already keeps the
 * SHA unit as busy as the library's calls can (see key_hash_transform.c).
 */
int key_chains(struct key_hasher *hasher, const struct key_prompt *prompts, size_t num_prompts)
{
    for (size_t i = 0; i < num_prompts; i++)
        if (!prompt_is_valid(&prompts[i]))
            return -EINVAL;

    for (size_t i = 0; i < num_prompts; i++) {
        if (prompts[i].num_tokens < prompts[i].block_tokens)
            continue;
        int err = key_blocks(hasher, &prompts[i]);
        if (err)
            return err;
    }
    return 0;
}

void key_sum(const void *bytes, size_t num_bytes, uint8_t out[KEY_BYTES])
{
    (void)SHA256(bytes, num_bytes, out);
}
