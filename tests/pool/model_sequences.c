/* tests/pool/model_sequences.c - the naive model's publish, fork, and all that lets go of blocks.
 */
#include "tests/pool/model.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t num_groups(const struct naive *naive, const struct sequence *sequence)
{
    return naive->models[sequence->model].num_groups;
}

/* ---- publish ---- */

/* Gives one full block its key, or the table the block that has it. */
static void publish_block(struct naive *naive, struct sequence *sequence, size_t group,
                          size_t block, uint32_t key)
{
    uint32_t arena_index = find_arena(naive, sequence->payer, sequence->model, group);
    struct arena *arena = &naive->slots.arenas[arena_index];
    struct place *place = &sequence->tables[group].items[block];
    uint32_t found = find_slot(arena, key);

    assert(place->arena == arena_index && place->index);
    if (found == place->index)
        return; /* a fork published it */
    if (!found) {
        assert(arena->slots[place->index].state == SLOT_PRIVATE);
        arena->slots[place->index].state = SLOT_PUBLISHED;
        arena->slots[place->index].key = key;
    } else if (!sequence->mapped) {
        struct place old = *place;
        place->index = found;
        hold(&naive->slots, *place);
        let_go(&naive->slots, old, NULL); /* "goes to the head at once" */
        naive->merged++;
    }
}

/* "in sliding groups, blocks that hold only tokens before position len - W + 1 are let go of" */
static void slide_windows(struct naive *naive, struct sequence *sequence)
{
    for (size_t group = 0; group < num_groups(naive, sequence); group++) {
        uint64_t window = naive->models[sequence->model].groups[group].window;
        struct places *table = &sequence->tables[group];
        for (size_t block = 0; window && block < table->num; block++) {
            uint64_t block_end = (block + 1) * naive->block_tokens;
            if (block_end + window > sequence->num_tokens + 1 || !table->items[block].index)
                continue;
            let_go(&naive->slots, table->items[block], NULL); /* "one by one" */
            table->items[block] = (struct place){0, 0};
        }
    }
}

/* "considers each full block that it has not considered before, in order, group after group" */
void publish(struct naive *naive, struct sequence *sequence)
{
    size_t num_full = sequence->num_tokens / naive->block_tokens;

    sweep_keys(naive);
    /* "A sequence from before the clear, and its forks, publish nothing any more" */
    for (size_t group = 0; sequence->epoch == naive->epoch && group < num_groups(naive, sequence);
         group++) {
        uint32_t key = root_key(naive, sequence, true);
        for (size_t block = 0; block < num_full; block++) {
            key = next_key(naive, sequence, key, block, true);
            if (block >= sequence->num_considered)
                publish_block(naive, sequence, group, block, key);
        }
    }
    sequence->num_considered = num_full;
    slide_windows(naive, sequence);
}

void run_publish(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *sequence = find_sequence(naive, command->name);

    if (!sequence) {
        (void)refuse(answer, NOT_FOUND);
        return;
    }
    if (sequence->is_preempted || sequence->is_unfilled) {
        (void)refuse(answer, INVALID);
        return;
    }
    publish(naive, sequence);
    text_add(answer, "ok ");
    print_tables(naive, sequence, answer);
}

void run_fill(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *sequence = find_sequence(naive, command->name);

    if (!sequence) {
        (void)refuse(answer, NOT_FOUND);
        return;
    }
    if (sequence->is_preempted || !sequence->is_unfilled) {
        (void)refuse(answer, INVALID);
        return;
    }
    sequence->is_unfilled = false;
    publish(naive, sequence);
    text_add(answer, "ok ");
    print_tables(naive, sequence, answer);
}

/* ---- fork ---- */

static struct sequence *copy_sequence(const struct sequence *from, const char *name)
{
    struct sequence *copy = malloc(sizeof(*copy));

    assert(copy);
    *copy = *from;
    strcpy(copy->name, name);
    copy->tokens = NULL;
    copy->tokens_capacity = 0;
    copy->tokens = grow(NULL, &copy->tokens_capacity, from->num_tokens + 1, sizeof(*copy->tokens));
    if (from->num_tokens)
        memcpy(copy->tokens, from->tokens, from->num_tokens * sizeof(*copy->tokens));
    copy->extras = calloc(from->num_extras + 1, sizeof(*copy->extras));
    assert(copy->extras);
    for (size_t i = 0; i < from->num_extras; i++) {
        uint8_t *bytes = malloc(from->extras[i].num_bytes);
        assert(bytes);
        copy->extras[i] = from->extras[i];
        copy->extras[i].bytes = memcpy(bytes, from->extras[i].bytes, from->extras[i].num_bytes);
    }
    for (size_t group = 0; group < SCRIPT_MAX_GROUPS; group++) {
        copy->tables[group] = (struct places){0};
        places_copy(&copy->tables[group], &from->tables[group]);
    }
    return copy;
}

/* "C has S's tokens, tables, tenant, session and options, and holds every block once more" */
void run_fork(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *sequence = find_sequence(naive, command->name);

    if (!sequence) {
        (void)refuse(answer, NOT_FOUND);
        return;
    }
    if (find_sequence(naive, command->child)) {
        (void)refuse(answer, EXISTS);
        return;
    }
    if (sequence->is_preempted || sequence->is_unfilled) {
        (void)refuse(answer, INVALID);
        return;
    }
    struct sequence *child = copy_sequence(sequence, command->child);
    for (size_t group = 0; group < num_groups(naive, child); group++)
        for (size_t block = 0; block < child->tables[group].num; block++)
            if (child->tables[group].items[block].index)
                hold(&naive->slots, child->tables[group].items[block]);
    naive->sequences = grow(naive->sequences, &naive->sequences_capacity, naive->num_sequences + 1,
                            sizeof(struct sequence *));
    naive->sequences[naive->num_sequences++] = child;
    text_add(answer, "ok ");
    print_tables(naive, child, answer);
}

/* ---- letting go ---- */

/* "from the last position to the first, at each position group after group" */
static void let_go_from(struct naive *naive, struct sequence *sequence, size_t first)
{
    assert(naive->batch.num == 0);
    for (size_t block = sequence->tables[0].num; block-- > first;) {
        for (size_t group = 0; group < num_groups(naive, sequence); group++)
            if (sequence->tables[group].items[block].index)
                let_go(&naive->slots, sequence->tables[group].items[block], &naive->batch);
    }
    end_batch(&naive->slots, &naive->batch);
    for (size_t group = 0; group < num_groups(naive, sequence); group++)
        if (sequence->tables[group].num > first)
            sequence->tables[group].num = first;
}

/* "a block that holds any of the W-1 tokens before N is gone" */
static bool is_window_gone(const struct naive *naive, const struct sequence *sequence,
                           uint64_t length)
{
    for (size_t group = 0; group < num_groups(naive, sequence); group++) {
        uint64_t window = naive->models[sequence->model].groups[group].window;
        for (size_t block = 0; window && block * naive->block_tokens < length; block++) {
            uint64_t block_end = (block + 1) * naive->block_tokens;
            if (block_end + window - 1 > length && !sequence->tables[group].items[block].index)
                return true;
        }
    }
    return false;
}

void run_truncate(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *sequence = find_sequence(naive, command->name);
    uint64_t length = command->number;

    if (!sequence) {
        (void)refuse(answer, NOT_FOUND);
        return;
    }
    if (sequence->is_preempted || sequence->is_unfilled || length > sequence->num_tokens ||
        is_window_gone(naive, sequence, length)) {
        (void)refuse(answer, INVALID);
        return;
    }
    let_go_from(naive, sequence, (length + naive->block_tokens - 1) / naive->block_tokens);
    sequence->num_tokens = length;
    if (sequence->num_considered > length / naive->block_tokens)
        sequence->num_considered = length / naive->block_tokens;
    text_add(answer, "ok ");
    print_tables(naive, sequence, answer);
}

void run_preempt(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *sequence = find_sequence(naive, command->name);

    if (!sequence) {
        (void)refuse(answer, NOT_FOUND);
        return;
    }
    if (sequence->is_preempted) {
        (void)refuse(answer, INVALID);
        return;
    }
    let_go_from(naive, sequence, 0);
    sequence->num_considered = 0;
    sequence->is_unfilled = false;
    sequence->is_preempted = true;
    text_add(answer, "ok");
}

static void release(struct naive *naive, struct sequence *sequence)
{
    size_t at = 0;

    let_go_from(naive, sequence, 0);
    while (naive->sequences[at] != sequence)
        at++;
    naive->num_sequences--;
    memmove(naive->sequences + at, naive->sequences + at + 1,
            (naive->num_sequences - at) * sizeof(struct sequence *));
    naive_sequence_destroy(sequence);
}

void run_release(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *sequence = find_sequence(naive, command->name);

    if (!sequence) {
        (void)refuse(answer, NOT_FOUND);
        return;
    }
    release(naive, sequence);
    text_add(answer, "ok");
}

/* "releases X's sequences in the order in which they were made; then X is not known" */
void run_end_session(struct naive *naive, const struct script_command *command, struct text *answer)
{
    size_t at = 0, num_released = 0;

    while (at < naive->num_sessions && strcmp(naive->sessions[at], command->name) != 0)
        at++;
    if (at == naive->num_sessions) {
        (void)refuse(answer, NOT_FOUND);
        return;
    }
    naive->num_sessions--;
    memmove(naive->sessions + at, naive->sessions + at + 1,
            (naive->num_sessions - at) * sizeof(*naive->sessions));
    for (size_t i = 0; i < naive->num_sequences;) {
        if (strcmp(naive->sequences[i]->session, command->name) == 0) {
            release(naive, naive->sequences[i]);
            num_released++;
        } else {
            i++;
        }
    }
    text_add(answer, "ok released=%zu", num_released);
}

void run_table(struct naive *naive, const struct script_command *command, struct text *answer)
{
    struct sequence *sequence = find_sequence(naive, command->name);

    if (!sequence) {
        (void)refuse(answer, NOT_FOUND);
        return;
    }
    text_add(answer, "len=%zu ", sequence->num_tokens);
    print_tables(naive, sequence, answer);
}
