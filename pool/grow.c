/* pool/grow.c - sequences gain tokens: copy-on-write of their tails, new slots. */
#include "pool/grow.h"

#include "pool/arena.h"
#include "pool/block.h"
#include "pool/plan.h"
#include "pool/transfer.h"

/* What writing the last, partial block of one group takes. */
enum tail_kind {
    TAIL_NONE = 0, /* no partial block */
    TAIL_OWN,      /* nobody else can see it: written in place */
    TAIL_CACHED,   /* published, nobody else holds it: copied, or unpublished if it has to be */
    TAIL_SHARED    /* another table has it, or it is the shared domain's: copied */
};

static bool has_tail(const struct pool *pool, const struct sequence *sequence)
{
    return sequence->length % pool->models[sequence->model].shape.block_tokens != 0;
}

static enum tail_kind tail_kind(const struct pool *pool, const struct sequence *sequence,
                                const struct entry *entry)
{
    const struct block *block = &pool->blocks[entry->block];

    if (sequence->num_positions <= sequence->num_shared || table_shares_tail(pool, sequence, entry))
        return TAIL_SHARED;
    if (block_is_published(pool, block))
        return block_slot(pool, block)->num_readers > 0 ? TAIL_SHARED : TAIL_CACHED;
    return block_slot(pool, block)->num_readers > 0 ? TAIL_SHARED : TAIL_OWN; /* it is read */
}

static bool is_copied(enum tail_kind kind, bool spare_copies)
{
    return kind == TAIL_SHARED || (kind == TAIL_CACHED && !spare_copies);
}

static uint32_t new_positions(const struct pool *pool, const struct grow_row *row)
{
    const struct sequence *sequence = &pool->sequences[row->sequence];

    return positions_of(pool, sequence, sequence->length + row->tokens.count) -
           sequence->num_positions;
}

/* What one row's group wants: its copy first, then its growth. */
static uint32_t wanted(const struct pool *pool, const struct grow_row *row, uint32_t group,
                       bool spare_copies, bool *out_is_copied)
{
    const struct sequence *sequence = &pool->sequences[row->sequence];

    *out_is_copied = false;
    if (has_tail(pool, sequence)) {
        const struct entry *entries = table_entries(pool, sequence, sequence->num_positions - 1);
        *out_is_copied = is_copied(tail_kind(pool, sequence, &entries[group]), spare_copies);
    }
    return *out_is_copied + new_positions(pool, row);
}

/* Transfers that read the last block of one group already. */
static uint32_t tail_readers(const struct pool *pool, const struct sequence *sequence,
                             uint32_t group)
{
    const struct entry *entries = table_entries(pool, sequence, sequence->num_positions - 1);

    return block_slot(pool, &pool->blocks[entries[group].block])->num_readers;
}

/* Takes the slots of all rows, in pool->fresh row by row, group after group. */
static int take_slots(struct pool *pool, const struct grow_row *rows, uint32_t num_rows,
                      bool spare_copies)
{
    uint32_t num_wants = 0, num_copies = 0;

    for (uint32_t at = 0; at < num_rows; at++) {
        const struct sequence *sequence = &pool->sequences[rows[at].sequence];
        uint32_t num_groups = rows[at].tokens.count > 0 ? num_groups_of(pool, sequence) : 0;
        for (uint32_t group = 0; group < num_groups; group++) {
            bool has_copy;
            uint32_t count = wanted(pool, &rows[at], group, spare_copies, &has_copy);
            num_copies += has_copy;
            if (has_copy && tail_readers(pool, sequence, group) + at >= MAX_READERS)
                return POOL_LIMIT;
            pool->wants[num_wants++] =
                (struct want){pool->shelves[sequence->shelf].first_arena + group, count};
        }
    }
    if (num_copies > records_left(&pool->transfer_pool))
        return POOL_LIMIT;
    if (num_wants == 0)
        return 0;
    return slots_take(pool, &(struct slot_request){.wants = pool->wants, .num_wants = num_wants});
}

/* Chunks for all rows, at most. */
static bool chunks_suffice(const struct pool *pool, const struct grow_row *rows, uint32_t num_rows)
{
    uint64_t for_tables = 0, for_tokens = 0;

    for (uint32_t at = 0; at < num_rows; at++) {
        const struct sequence *sequence = &pool->sequences[rows[at].sequence];
        uint32_t last = sequence->num_positions == 0 ? 0 : sequence->num_positions - 1;
        if (rows[at].tokens.count == 0)
            continue;
        for_tables += table_chunks_needed(pool, sequence, last,
                                          sequence->num_positions + new_positions(pool, &rows[at]));
        for_tokens += tokens_chunks_needed(pool, sequence, rows[at].tokens.count);
    }
    return for_tables <= chunks_left(pool->table_chunks) &&
           for_tokens <= chunks_left(pool->token_chunks);
}

/* ---- one row, its slots in hand ------------------------------------------------------------- */

static struct entry entry_of(const struct pool *pool, uint32_t block)
{
    return (struct entry){block, block_slot(pool, &pool->blocks[block])->number};
}

/* The tail of one group: copied into slot @copy, or made writable in place. */
static void replace_tail(struct pool *pool, struct sequence *sequence, struct entry *entry,
                         uint32_t group, uint32_t copy)
{
    struct block *old = &pool->blocks[entry->block];

    if (copy == NONE) {
        if (old->state == BLOCK_PUBLISHED) {
            pool->counters.unpublished_in_place += block_is_published(pool, old);
            block_unpublish(pool, entry->block);
        }
        return;
    }
    sequence->growth.old_tails[group] = entry->block; /* the table's hold goes over to the growth */
    sequence->growth.num_copies++;
    uint32_t block = block_create(pool, copy);
    transfer_copy(pool, entry->block, block, sequence_id(pool, sequence));
    *entry = entry_of(pool, block);
}

/* Grows one sequence with its part of pool->fresh, from *@at on. */
static void grow_row(struct pool *pool, const struct grow_row *row, bool spare_copies, uint32_t *at)
{
    struct sequence *sequence = &pool->sequences[row->sequence];
    uint32_t num_groups = num_groups_of(pool, sequence), tail = sequence->num_positions - 1;
    uint32_t count = new_positions(pool, row), first_new[POOL_MAX_GROUPS];
    uint32_t copies[POOL_MAX_GROUPS];
    bool is_partial = has_tail(pool, sequence);

    for (uint32_t group = 0; group < num_groups; group++) { /* before the chunk is owned: it asks */
        bool has_copy;
        (void)wanted(pool, row, group, spare_copies, &has_copy);
        copies[group] = has_copy ? pool->fresh[(*at)++] : NONE;
        first_new[group] = *at;
        *at += count;
    }
    if (is_partial || sequence->num_positions % pool->models[sequence->model].table_positions != 0)
        (void)table_own(pool, sequence,
                        tail); /* unless the last chunk is full, and stays as it is */
    if (is_partial) {
        struct entry *entries = table_entries(pool, sequence, tail);
        for (uint32_t group = 0; group < num_groups; group++)
            replace_tail(pool, sequence, &entries[group], group, copies[group]);
        if (sequence->num_shared > tail)
            sequence->num_shared = tail;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct entry *entries = table_add(pool, sequence);
        for (uint32_t group = 0; group < num_groups; group++)
            entries[group] = entry_of(pool, block_create(pool, pool->fresh[first_new[group] + i]));
    }
    tokens_add(pool, sequence, &row->tokens);
}

int grow_begin(struct pool *pool, const struct grow_row *rows, uint32_t num_rows)
{
    uint32_t at_fresh = 0;
    bool spare_copies;
    int answer;

    if (!chunks_suffice(pool, rows, num_rows))
        return POOL_LIMIT;
    do {
        spare_copies = false;
        answer = take_slots(pool, rows, num_rows, false);
        if (answer == POOL_NO_BLOCKS || answer == POOL_QUOTA) {
            spare_copies = true;
            answer = take_slots(pool, rows, num_rows, true);
        }
    } while ((answer == POOL_NO_BLOCKS || answer == POOL_QUOTA) && releases_advance(pool));
    if (answer)
        return answer;

    for (uint32_t at = 0; at < num_rows; at++) {
        struct sequence *sequence = &pool->sequences[rows[at].sequence];
        sequence->growth.old_length = sequence->length;
        sequence->growth.has_failed = false;
        if (rows[at].tokens.count > 0)
            grow_row(pool, &rows[at], spare_copies, &at_fresh);
    }
    return 0;
}

/* ---- afterwards ----------------------------------------------------------------------------- */

void grow_commit(struct pool *pool, struct sequence *sequence)
{
    for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++) {
        if (sequence->growth.old_tails[group] != NONE)
            block_let_go(pool, sequence->growth.old_tails[group], SLOT_TO_HEAD);
        sequence->growth.old_tails[group] = NONE;
    }
}

/* Puts the old tails back into the table; the copies are let go of. */
static void restore_tails(struct pool *pool, struct sequence *sequence)
{
    uint32_t tail = sequence->num_positions - 1;
    struct entry *entries = table_entries(pool, sequence, tail);

    for (uint32_t group = 0; group < num_groups_of(pool, sequence); group++) {
        uint32_t old = sequence->growth.old_tails[group], copy = entries[group].block;
        if (old == NONE)
            continue;
        entries[group] = entry_of(pool, old);
        sequence->growth.old_tails[group] = NONE;
        if (pool->arenas[pool->blocks[old].arena].shelf != sequence->shelf)
            sequence->num_shared = tail + 1;
        block_let_go(pool, copy, SLOT_TO_HEAD);
    }
}

void grow_undo(struct pool *pool, struct sequence *sequence)
{
    uint64_t old_length = sequence->growth.old_length;

    pool->batch++;
    table_truncate(pool, sequence, positions_of(pool, sequence, old_length));
    if (sequence->num_positions > 0)
        restore_tails(pool, sequence);
    tokens_truncate(pool, sequence, old_length);
    transfers_forget(pool, sequence_id(pool, sequence));
}

void grow_forget(struct pool *pool, struct sequence *sequence)
{
    grow_commit(pool, sequence);
    transfers_forget(pool, sequence_id(pool, sequence));
}

int pool_append(struct pool *pool, struct pool_name name, const struct pool_tokens *tokens,
                uint64_t cookie)
{
    uint32_t id = sequence_find(pool, name);

    if (id == NONE)
        return POOL_NOT_FOUND;
    struct sequence *sequence = &pool->sequences[id];
    if (sequence->promotion.is_waiting)
        return POOL_BUSY;
    if (tokens->count == 0 || sequence->is_preempted || !sequence->is_filled ||
        sequence->step != NONE)
        return POOL_INVALID;
    if (sequence_is_busy(sequence))
        return POOL_BUSY;
    uint64_t most = (uint64_t)pool->config.max_sequence_blocks *
                    pool->models[sequence->model].shape.block_tokens;
    if (tokens->count > most - sequence->length)
        return POOL_LIMIT;

    int answer = grow_begin(pool, &(struct grow_row){id, *tokens}, 1);
    if (answer)
        return answer;
    if (sequence->growth.num_copies > 0) {
        sequence->is_growing = true;
        sequence->growth.cookie = cookie;
        return POOL_PENDING;
    }
    sequence->num_complete = sequence->length;
    return 0;
}
