/* tests/pool/tiers_verbs.c - the engine of the random test of tiers: its verbs, drawn at random. */
#include "tests/pool/tiers_bed.h"

static void granted(struct sequence *sequence)
{
    run.num_grants++;
    sequence->state = LIVE;
    read_and_write(sequence);
    sequence->written = sequence->count;
    if (sequence->is_unfilled)
        expect(pool_fill(world.pool, name_of(sequence)) == 0);
    sequence->is_unfilled = false;
    if (!one_in(8))
        expect(pool_publish(world.pool, name_of(sequence)) == 0);
}

/* The last token's block is written, the others are looked at; full ones may be published. */
static void appended(struct sequence *sequence)
{
    if (sequence->written > (sequence->count - 1) / BLOCK * BLOCK)
        sequence->written = (sequence->count - 1) / BLOCK * BLOCK;
    read_and_write(sequence);
    sequence->written = sequence->count;
    if (one_in(2))
        expect(pool_publish(world.pool, name_of(sequence)) == 0);
}

void take_replies(void)
{
    for (uint32_t i = 0; i < NUM_SEQUENCES; i++) {
        struct sequence *sequence = &world.sequences[i];
        if (sequence->state != WAITING || sequence->reply == POOL_PENDING)
            continue;
        expect(sequence->reply == 0 || sequence->reply == POOL_RETRY ||
               sequence->reply == POOL_TIMEOUT || sequence->reply == POOL_MISS ||
               (sequence->is_append && sequence->reply == POOL_FAILED));
        bool is_append = sequence->is_append;
        sequence->is_append = false;
        sequence->state = sequence->before;
        if (is_append && sequence->reply != 0)
            sequence->count--;
        else if (is_append)
            appended(sequence);
        else if (sequence->reply == 0)
            granted(sequence);
    }
}

static struct sequence *pick(enum state state)
{
    struct sequence *sequence = &world.sequences[below(NUM_SEQUENCES)];

    return sequence->state == state ? sequence : NULL;
}

static struct pool_alloc_options begin_waiting(struct sequence *sequence)
{
    sequence->before = sequence->state;
    sequence->state = WAITING;
    sequence->cookie = ++world.cookie;
    sequence->reply = POOL_PENDING;
    return (struct pool_alloc_options){.take = POOL_TAKE_ALL,
                                       .cookie = sequence->cookie,
                                       .deadline_ms = one_in(2) ? 0 : world.now_ms + below(50)};
}

static void answered(struct sequence *sequence, int answer, const struct pool_found *found)
{
    sequence->written = found->matched;
    if (answer == 0)
        granted(sequence);
    else if (answer != POOL_PENDING)
        sequence->state = sequence->before;
    expect(answer != 0 || found->below == 0);
}

void do_alloc(void)
{
    struct sequence *sequence = pick(FREE);
    struct pool_found found = {0};

    if (!sequence)
        return;
    *sequence = (struct sequence){.tenant = below(NUM_PAYERS),
                                  .shared = one_in(2) ? NUM_TENANTS : POOL_NONE,
                                  .model = below(NUM_MODELS),
                                  .text = below(NUM_TEXTS),
                                  .count = 1 + below(MAX_TOKENS - 1)};
    if (sequence->tenant == NUM_TENANTS)
        sequence->shared = POOL_NONE;
    const struct pool_alloc_options options = begin_waiting(sequence);
    const struct pool_prompt prompt = make_prompt(sequence);
    answered(sequence, pool_alloc(world.pool, name_of(sequence), &prompt, &options, &found),
             &found);
}

void do_resume(void)
{
    struct sequence *sequence = pick(PREEMPTED);
    struct pool_found found = {0};

    if (!sequence)
        return;
    const struct pool_alloc_options options = begin_waiting(sequence);
    const struct pool_prompt prompt = make_prompt(sequence);
    answered(sequence, pool_resume(world.pool, name_of(sequence), &prompt.tokens, &options, &found),
             &found);
}

void do_release(void)
{
    struct sequence *sequence = &world.sequences[below(NUM_SEQUENCES)];

    if (sequence->state == FREE)
        return;
    int answer = pool_release(world.pool, name_of(sequence), 0);
    expect(answer == (sequence->state == WAITING ? POOL_BUSY : 0)); /* T5 */
    if (answer == 0)
        sequence->state = FREE;
}

void do_preempt(void)
{
    struct sequence *sequence = pick(LIVE);

    if (!sequence)
        return;
    expect(pool_preempt(world.pool, name_of(sequence), 0) == 0);
    sequence->state = PREEMPTED;
}

void do_prefetch(void)
{
    struct sequence sequence = {.tenant = below(NUM_TENANTS),
                                .shared = NUM_TENANTS,
                                .model = below(NUM_MODELS),
                                .text = below(NUM_TEXTS),
                                .count = MAX_TOKENS};
    const struct pool_prompt prompt = make_prompt(&sequence);
    struct pool_prefetched prefetched;

    expect(pool_prefetch(world.pool, &prompt, &prefetched) == 0);
    expect(prefetched.present + prefetched.coming <= prefetched.matched);
}

/* One more token; a tail that others can see is copied first. */
void do_append(void)
{
    struct sequence *sequence = pick(LIVE);

    if (!sequence || sequence->count == MAX_TOKENS)
        return;
    sequence->count++;
    struct pool_prompt prompt = make_prompt(sequence);
    prompt.tokens.ids += sequence->count - 1;
    prompt.tokens.count = 1;
    prompt.tokens.keys += (sequence->count - 1) / BLOCK;
    const struct sequence before = *sequence;
    sequence->state = WAITING;
    sequence->before = LIVE;
    sequence->is_append = true;
    sequence->reply = POOL_PENDING;
    sequence->cookie = ++world.cookie;
    int answer = pool_append(world.pool, name_of(sequence), &prompt.tokens, sequence->cookie);
    if (answer == POOL_PENDING)
        return;
    *sequence = before;
    if (answer)
        sequence->count--;
    else
        appended(sequence);
}

/* A fork reads what its parent has; neither writes what both have. */
void do_fork(void)
{
    struct sequence *parent = pick(LIVE), *child = pick(FREE);

    if (!parent || !child)
        return;
    int answer = pool_fork(world.pool, name_of(parent), name_of(child).id);
    expect(answer == 0 || answer == POOL_LIMIT);
    if (answer)
        return;
    *child = *parent;
    read_only(child);
}

void do_truncate(void)
{
    struct sequence *sequence = pick(LIVE);
    uint64_t count;

    if (!sequence || (count = below((uint32_t)sequence->count + 1)) == 0)
        return;
    int answer = pool_truncate(world.pool, name_of(sequence), count, 0);
    expect(answer == 0 || answer == POOL_LIMIT || answer == POOL_INVALID); /* out of the window */
    if (answer)
        return;
    sequence->count = count;
    if (sequence->written > count)
        sequence->written = count;
}

/* A chunked prefill: it takes slots for a part of its prompt, and promises what it fills. */
void do_alloc_unfilled(void)
{
    struct sequence *sequence = pick(FREE);
    struct pool_found found = {0};

    if (!sequence)
        return;
    *sequence = (struct sequence){.tenant = below(NUM_TENANTS),
                                  .shared = POOL_NONE,
                                  .model = below(NUM_MODELS),
                                  .text = below(NUM_TEXTS),
                                  .count = 1 + below(MAX_TOKENS - 1),
                                  .is_unfilled = true};
    struct pool_alloc_options options = begin_waiting(sequence);
    options.is_unfilled = true;
    const struct pool_prompt prompt = make_prompt(sequence);
    answered(sequence, pool_alloc(world.pool, name_of(sequence), &prompt, &options, &found),
             &found);
}

void do_cancel(void)
{
    struct sequence *sequence = pick(WAITING);

    if (sequence)
        expect(pool_cancel(world.pool, world.session, sequence->cookie) ==
               (sequence->is_append ? POOL_NOT_FOUND : 0));
}
