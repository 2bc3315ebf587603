/*
 * tests/pool/model.c - the naive reference model of the pool: who answers which verb.
 *
 * An independent reading of the page that says how the pool behaves. The core is compared with it
 * byte for byte, so nothing here is clever, and nothing here knows how the core does it.
 */
#include "tests/pool/model.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *grow(void *items, size_t *capacity, size_t num, size_t item_size)
{
    if (num <= *capacity)
        return items;
    size_t old = *capacity;
    *capacity = num < 2 * old ? 2 * old : num;
    items = realloc(items, *capacity * item_size);
    assert(items);
    memset((char *)items + old * item_size, 0, (*capacity - old) * item_size);
    return items;
}

void places_insert(struct places *places, size_t at, uint32_t arena, uint32_t index)
{
    places->items = grow(places->items, &places->capacity, places->num + 1, sizeof(*places->items));
    memmove(places->items + at + 1, places->items + at,
            (places->num - at) * sizeof(*places->items));
    places->items[at] = (struct place){arena, index};
    places->num++;
}

void places_add(struct places *places, uint32_t arena, uint32_t index)
{
    places_insert(places, places->num, arena, index);
}

void places_remove(struct places *places, size_t at)
{
    assert(at < places->num);
    places->num--;
    memmove(places->items + at, places->items + at + 1,
            (places->num - at) * sizeof(*places->items));
}

void places_copy(struct places *to, const struct places *from)
{
    to->items = grow(to->items, &to->capacity, from->num, sizeof(*to->items));
    if (from->num)
        memcpy(to->items, from->items, from->num * sizeof(*to->items));
    to->num = from->num;
}

size_t places_find(const struct places *places, uint32_t arena, uint32_t index)
{
    size_t at = 0;

    while (at < places->num &&
           (places->items[at].arena != arena || places->items[at].index != index))
        at++;
    return at;
}

uint32_t find_arena(const struct naive *naive, uint32_t payer, uint32_t model, size_t group)
{
    for (size_t i = 0; i < naive->slots.num_arenas; i++) {
        const struct arena *arena = &naive->slots.arenas[i];
        if (arena->payer == payer && arena->model == model && arena->group == group)
            return (uint32_t)i;
    }
    return NO_INDEX;
}

int refuse(struct text *answer, enum refusal refusal)
{
    static const char *const words[] = {
        [NOT_FOUND] = "NOT_FOUND",   [EXISTS] = "EXISTS", [INVALID] = "INVALID",
        [NEVER_FITS] = "NEVER_FITS", [QUOTA] = "QUOTA",   [NO_BLOCKS] = "NO_BLOCKS"};

    text_add(answer, "%s", words[refusal]);
    return refusal;
}

int answer_error(struct text *answer, const char *format, ...)
{
    char words[256];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    text_add(answer, "error: %s", words);
    return -EINVAL;
}

static uint32_t find_model(const struct naive *naive, const char *name)
{
    for (size_t i = 0; i < naive->num_models; i++)
        if (strcmp(naive->models[i].name, name) == 0)
            return (uint32_t)i;
    return NO_INDEX;
}

uint32_t find_payer(const struct naive *naive, const char *name)
{
    for (size_t i = 0; i < naive->num_payers; i++)
        if (strcmp(naive->payers[i].name, name) == 0)
            return (uint32_t)i;
    return NO_INDEX;
}

/* "where only one tenant (domains aside) is declared" */
static uint32_t only_tenant(const struct naive *naive)
{
    uint32_t only = NO_INDEX;

    for (size_t i = 0; i < naive->num_payers; i++) {
        if (naive->payers[i].is_domain)
            continue;
        if (only != NO_INDEX)
            return NO_INDEX;
        only = (uint32_t)i;
    }
    return only;
}

int resolve(const struct naive *naive, const struct script_command *command, uint32_t *out_model,
            uint32_t *out_payer, struct text *answer)
{
    if (!*command->model && naive->num_models != 1)
        return answer_error(answer, "model= is missing, and not exactly one model is declared");
    if (!*command->tenant && only_tenant(naive) == NO_INDEX)
        return answer_error(answer, "tenant= is missing, and not exactly one tenant is declared");
    *out_model = *command->model ? find_model(naive, command->model) : 0;
    *out_payer = *command->tenant ? find_payer(naive, command->tenant) : only_tenant(naive);
    if (*out_model == NO_INDEX || *out_payer == NO_INDEX)
        return refuse(answer, NOT_FOUND);
    return 0;
}

/* clang-format off */
static void (*const answer_verb[NUM_VERBS])(struct naive *, const struct script_command *,
                                            struct text *) = {
    [VERB_POOL]        = run_pool,
    [VERB_TENANT]      = run_tenant,
    [VERB_DOMAIN]      = run_domain,
    [VERB_MODEL]       = run_model,
    [VERB_ALLOC]       = run_alloc,
    [VERB_FIND]        = run_find,
    [VERB_APPEND]      = run_append,
    [VERB_FILL]        = run_fill,
    [VERB_PUBLISH]     = run_publish,
    [VERB_FORK]        = run_fork,
    [VERB_TRUNCATE]    = run_truncate,
    [VERB_PREEMPT]     = run_preempt,
    [VERB_RESUME]      = run_resume,
    [VERB_RELEASE]     = run_release,
    [VERB_END_SESSION] = run_end_session,
    [VERB_TABLE]       = run_table,
    [VERB_FREE_LIST]   = run_free_list,
    [VERB_HOLDS]       = run_holds,
    [VERB_EVICT]       = run_evict,
    [VERB_CLEAR]       = run_clear,
    [VERB_STATS]       = run_stats,
    [VERB_CHECK]       = run_check,
};
/* clang-format on */

static void *model_create(void)
{
    return calloc(1, sizeof(struct naive));
}

static void model_destroy(void *self)
{
    struct naive *naive = self;

    if (!naive)
        return;
    for (size_t i = 0; i < naive->num_sequences; i++)
        naive_sequence_destroy(naive->sequences[i]);
    for (size_t i = 0; i < naive->num_payers; i++)
        free(naive->payers[i].readers);
    for (size_t i = 0; i < naive->num_keys; i++) {
        free(naive->keys[i].tokens);
        free(naive->keys[i].extra);
    }
    for (size_t i = 0; i < SCRIPT_MAX_GROUPS; i++) {
        free(naive->found[0][i].items);
        free(naive->found[1][i].items);
        free(naive->planned[i].items);
    }
    slots_finish(&naive->slots);
    slots_finish(&naive->trial);
    free(naive->batch.items);
    free(naive->sequences);
    free(naive->sessions);
    free(naive->payers);
    free(naive->models);
    free(naive->keys);
    free(naive);
}

static void model_run(void *self, const struct script_command *command, struct text *answer)
{
    struct naive *naive = self;

    if (command->is_extended) {
        (void)answer_error(answer, "the naive model knows the page's grammar only");
        return;
    }
    if (!naive->has_pool && command->verb != VERB_POOL) {
        (void)answer_error(answer, "the first line must be: pool blocks=N");
        return;
    }
    answer_verb[command->verb](naive, command, answer);
}

const struct script_subject subject_model = {
    .name = "model", .create = model_create, .destroy = model_destroy, .run = model_run};
