/*
 * tests/pool/random_lines.c - makes up lines that are likely to make trouble: few tokens and common
 * prefixes, so that keys collide; pools that are nearly full; and now and then a line that is
 * wrong.
 */
#include "tests/pool/random_lines.h"
#include "tests/pool/script.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_NAMES = 24, MAX_TENANTS = 3, MAX_DOMAINS = 2, MAX_MODELS = 2, MAX_SETUP = 16 };

/* What is believed of a sequence; the pool may know better. */
struct guess {
    bool exists, is_preempted, is_unfilled;
    unsigned base, session; /* 0: none */
    uint64_t length;
};

struct random_lines {
    uint64_t state;
    struct text line;
    char setup[MAX_SETUP][160];
    size_t num_setup, next_setup;
    unsigned num_tenants, num_domains, num_models, num_groups[MAX_MODELS];
    uint64_t blocks, block_tokens, prompt_tokens;
    unsigned alloc_weight;
    bool has_many_a_granule;
    struct guess guesses[NUM_NAMES];
    /* of the last line */
    enum script_verb verb;
    unsigned name, child, session;
    struct guess next;
    uint64_t number;
};

/* splitmix64 */
static uint64_t next_random(struct random_lines *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* From 0 to @end - 1. */
static unsigned below(struct random_lines *random, uint64_t end)
{
    return (unsigned)(next_random(random) % end);
}

static bool one_in(struct random_lines *random, unsigned n)
{
    return below(random, n) == 0;
}

/* ---- set-up ---- */

static char *add_setup(struct random_lines *random)
{
    assert(random->num_setup < MAX_SETUP);
    return random->setup[random->num_setup++];
}

static void add_quota(struct random_lines *random, char *line, uint64_t *guarantee_left)
{
    uint64_t guarantee = 0;

    if (one_in(random, 3)) {
        guarantee = below(random, *guarantee_left / 2 + 1);
        *guarantee_left -= guarantee;
        sprintf(line + strlen(line), " guarantee=%llu", (unsigned long long)guarantee);
    }
    if (one_in(random, 3))
        sprintf(line + strlen(line), " limit=%llu",
                (unsigned long long)(guarantee + below(random, random->blocks + 1)));
    if (one_in(random, 2))
        sprintf(line + strlen(line), " weight=%u", 1 + below(random, 4));
}

static void add_model(struct random_lines *random, unsigned model)
{
    char groups[80] = "", granules[40] = "", *line = add_setup(random);
    unsigned num_groups = 1 + (one_in(random, 2) ? 1 + below(random, 2) : 0);

    for (unsigned i = 0; i < num_groups; i++) {
        const char *comma = i ? "," : "";
        unsigned window = 2 + below(random, 4 * random->block_tokens);
        if (one_in(random, 2))
            sprintf(groups + strlen(groups), "%sfull", comma);
        else
            sprintf(groups + strlen(groups), "%ssliding:%u", comma, window);
        sprintf(granules + strlen(granules), "%s%u", comma, 1 + below(random, 4));
    }
    random->num_groups[model] = num_groups;
    sprintf(line, "model M%u groups=%s", model, groups);
    if (random->has_many_a_granule)
        sprintf(line + strlen(line), " per_granule=%s", granules);
}

static void add_payers(struct random_lines *random)
{
    uint64_t guarantee_left = random->blocks;

    for (unsigned i = 0; i < random->num_tenants; i++) {
        char *line = add_setup(random);
        sprintf(line, "tenant T%u", i);
        add_quota(random, line, &guarantee_left);
    }
    for (unsigned i = 0; i < random->num_domains; i++) {
        char *line = add_setup(random);
        sprintf(line, "domain D%u readers=T0", i);
        for (unsigned reader = 1; reader < random->num_tenants; reader++)
            if (one_in(random, 2))
                sprintf(line + strlen(line), ",T%u", reader);
        add_quota(random, line, &guarantee_left);
    }
}

struct random_lines *random_lines_create(uint64_t seed)
{
    static const uint64_t lengths[] = {1, 2, 2, 3, 4, 4, 4, 8, 16};
    struct random_lines *random = calloc(1, sizeof(*random));

    assert(random);
    random->state = seed;
    (void)next_random(random);
    random->block_tokens = lengths[below(random, 9)];
    random->blocks = 1 + below(random, one_in(random, 2) ? 12 : 48);
    random->has_many_a_granule = one_in(random, 3);
    random->num_tenants = 1 + (one_in(random, 2) ? below(random, MAX_TENANTS) : 0);
    random->num_domains = one_in(random, 2) ? 1 + below(random, MAX_DOMAINS) : 0;
    random->num_models = 1 + one_in(random, 3);
    random->alloc_weight = 15 + below(random, 30);
    random->prompt_tokens = random->block_tokens * (1 + below(random, 2 + random->blocks / 3));

    char *line = add_setup(random);
    sprintf(line, "pool blocks=%llu block_tokens=%llu", (unsigned long long)random->blocks,
            (unsigned long long)random->block_tokens);
    if (one_in(random, 3))
        sprintf(line + strlen(line), " watermark=%u", below(random, 1 + random->blocks / 3));
    /* half of the models before the payers, half after: neither order may matter */
    bool models_first = one_in(random, 2);
    if (!models_first)
        add_payers(random);
    for (unsigned i = 0; i < random->num_models; i++)
        add_model(random, i);
    if (models_first)
        add_payers(random);
    return random;
}

void random_lines_destroy(struct random_lines *random)
{
    if (!random)
        return;
    text_finish(&random->line);
    free(random);
}

const char *random_lines_next_setup(struct random_lines *random)
{
    return random->next_setup < random->num_setup ? random->setup[random->next_setup++] : NULL;
}

/* ---- parts of lines ---- */

/* A name of a sequence: mostly one that is believed to exist, or not to, as asked. */
static unsigned pick_name(struct random_lines *random, bool shall_exist)
{
    unsigned name = below(random, NUM_NAMES);

    if (one_in(random, 40))
        return name;
    for (unsigned i = 0; i < NUM_NAMES; i++) {
        unsigned next = (name + i) % NUM_NAMES;
        if (random->guesses[next].exists == shall_exist)
            return next;
    }
    return name;
}

/* Tokens @from to @to - 1 of one of a few endless texts. */
static void add_base(struct random_lines *random, unsigned base, uint64_t from, uint64_t to)
{
    if (base == 0)
        text_add(&random->line, "7*%llu", (unsigned long long)(to - from));
    else
        text_add(&random->line, "%llu..%llu", (unsigned long long)(from + (base - 1) * 1000),
                 (unsigned long long)(to - 1 + (base - 1) * 1000));
}

static void add_prompt(struct random_lines *random, uint64_t max_tokens)
{
    uint64_t length = below(random, max_tokens) + 1, own = one_in(random, 3) ? below(random, 4) : 0;

    if (one_in(random, 3)) /* around the ends of blocks */
        length = (length / random->block_tokens) * random->block_tokens + below(random, 2);
    length = length ? length : 1;
    random->next.base = below(random, 3);
    random->next.length = length + own;
    text_add(&random->line, " tokens=");
    if (one_in(random, 200)) {
        random->next.length = 0;
        return;
    }
    add_base(random, random->next.base, 0, length);
    for (uint64_t i = 0; i < own; i++)
        text_add(&random->line, ",%u", below(random, 3));
}

static void add_model_word(struct random_lines *random)
{
    if (random->num_models > 1 ? !one_in(random, 200) : one_in(random, 20))
        text_add(&random->line, " model=M%u",
                 below(random, one_in(random, 200) ? MAX_MODELS + 1 : random->num_models));
}

/* Returns whether it named a domain. */
static bool add_tenant_word(struct random_lines *random)
{
    if (random->num_domains && one_in(random, 6)) {
        text_add(&random->line, " tenant=D%u", below(random, random->num_domains));
        return true;
    }
    if (random->num_tenants > 1 ? !one_in(random, 200) : one_in(random, 20))
        text_add(&random->line, " tenant=T%u",
                 below(random, one_in(random, 200) ? MAX_TENANTS + 1 : random->num_tenants));
    return false;
}

static void add_identity(struct random_lines *random)
{
    add_model_word(random);
    bool is_domain = add_tenant_word(random);
    if (random->num_domains && one_in(random, is_domain ? 50 : 2))
        text_add(&random->line, " layered=D%u", below(random, random->num_domains));
    if (one_in(random, 8))
        text_add(&random->line, " salt=%s", one_in(random, 2) ? "x" : "y");
    if (one_in(random, 8))
        text_add(&random->line, " adapter=%s", one_in(random, 2) ? "x" : "a");
    if (one_in(random, 8))
        text_add(&random->line, " extra=%u:%02x", below(random, 3), below(random, 2));
}

/* ---- lines ---- */

static void add_alloc(struct random_lines *random)
{
    random->name = pick_name(random, false);
    text_add(&random->line, "alloc S%u", random->name);
    add_prompt(random, random->prompt_tokens);
    add_identity(random);
    if (one_in(random, 3))
        text_add(&random->line, " session=X%u", random->next.session = 1 + below(random, 3));
    if (one_in(random, 4))
        text_add(&random->line, " raw");
    if (one_in(random, 5))
        text_add(&random->line, " mapped");
    if (one_in(random, 3)) {
        text_add(&random->line, " unfilled");
        random->next.is_unfilled = true;
    }
    if (one_in(random, 8))
        text_add(&random->line, " take=%u", below(random, 3 * random->block_tokens));
}

static void add_append(struct random_lines *random)
{
    random->name = pick_name(random, true);
    const struct guess *guess = &random->guesses[random->name];
    uint64_t most = one_in(random, 4) ? 3 * random->block_tokens : 2;
    random->number = 1 + below(random, most);
    text_add(&random->line, "append S%u tokens=", random->name);
    if (one_in(random, 2))
        add_base(random, guess->base, guess->length, guess->length + random->number);
    else
        text_add(&random->line, "%u*%llu", below(random, 3), (unsigned long long)random->number);
}

static void add_truncate(struct random_lines *random)
{
    random->name = pick_name(random, true);
    uint64_t length = random->guesses[random->name].length;
    uint64_t back = below(random, one_in(random, 3) ? length + 1 : random->block_tokens + 1);
    random->number = back > length ? length + one_in(random, 20) : length - back;
    text_add(&random->line, "truncate S%u %llu", random->name, (unsigned long long)random->number);
}

static void add_resume(struct random_lines *random)
{
    random->name = below(random, NUM_NAMES);
    for (unsigned i = 0; i < NUM_NAMES && !random->guesses[random->name].is_preempted; i++)
        random->name = (random->name + 1) % NUM_NAMES;
    if (!random->guesses[random->name].is_preempted && !one_in(random, 20)) {
        random->verb = VERB_ALLOC;
        add_alloc(random);
        return;
    }
    text_add(&random->line, "resume S%u", random->name);
    if (one_in(random, 6)) {
        text_add(&random->line, " unfilled");
        random->next.is_unfilled = true;
    }
    if (one_in(random, 8))
        text_add(&random->line, " take=%u", below(random, 2 * random->block_tokens + 1));
}

static void add_fill(struct random_lines *random)
{
    random->name = below(random, NUM_NAMES);
    for (unsigned i = 0; i < NUM_NAMES && !random->guesses[random->name].is_unfilled; i++)
        random->name = (random->name + 1) % NUM_NAMES;
    if (!random->guesses[random->name].is_unfilled && !one_in(random, 20)) {
        random->verb = VERB_ALLOC;
        add_alloc(random);
        return;
    }
    text_add(&random->line, "fill S%u", random->name);
}

static void add_fork(struct random_lines *random)
{
    random->name = pick_name(random, true);
    random->child = pick_name(random, false);
    text_add(&random->line, "fork S%u S%u", random->name, random->child);
}

static void add_holds(struct random_lines *random)
{
    text_add(&random->line, "holds 1,2,3,4,5,6,%u", below(random, 60));
    add_model_word(random);
    (void)add_tenant_word(random);
}

static void add_free_list(struct random_lines *random)
{
    text_add(&random->line, "free-list");
    add_model_word(random);
    (void)add_tenant_word(random);
    if (one_in(random, 2))
        text_add(&random->line, " group=%u", below(random, 3));
}

/* Verbs with a sequence's name and nothing else, and those with nothing at all. */
static void add_simple(struct random_lines *random)
{
    static const char *const words[NUM_VERBS] = {[VERB_PUBLISH] = "publish",
                                                 [VERB_PREEMPT] = "preempt",
                                                 [VERB_RELEASE] = "release",
                                                 [VERB_TABLE] = "table"};

    random->name = pick_name(random, true);
    text_add(&random->line, "%s S%u", words[random->verb], random->name);
}

static void add_line(struct random_lines *random)
{
    switch (random->verb) {
    case VERB_ALLOC:
        add_alloc(random);
        break;
    case VERB_FIND:
        text_add(&random->line, "find");
        add_prompt(random, random->prompt_tokens);
        add_identity(random);
        if (one_in(random, 3))
            text_add(&random->line, " raw");
        break;
    case VERB_APPEND:
        add_append(random);
        break;
    case VERB_FILL:
        add_fill(random);
        break;
    case VERB_FORK:
        add_fork(random);
        break;
    case VERB_TRUNCATE:
        add_truncate(random);
        break;
    case VERB_RESUME:
        add_resume(random);
        break;
    case VERB_END_SESSION:
        text_add(&random->line, "end-session X%u", random->session = 1 + below(random, 3));
        break;
    case VERB_HOLDS:
        add_holds(random);
        break;
    case VERB_FREE_LIST:
        add_free_list(random);
        break;
    case VERB_EVICT:
        text_add(&random->line, "evict %u", 1 + below(random, 4));
        break;
    case VERB_CLEAR:
        text_add(&random->line, "clear");
        break;
    default:
        add_simple(random);
    }
}

/* Makes most lines unreadable, and of some another that can be read. */
static void spoil(struct random_lines *random)
{
    static const char marks[] = "0123456789 =.,*:#Sxr";

    random->line.bytes[below(random, random->line.length)] =
        marks[below(random, sizeof(marks) - 1)];
}

const char *random_lines_next(struct random_lines *random)
{
    /* clang-format off */
    const struct { enum script_verb verb; unsigned weight; } choices[] = {
        {VERB_ALLOC, 10 * random->alloc_weight}, {VERB_FIND, 60}, {VERB_APPEND, 180},
        {VERB_FILL, 30}, {VERB_PUBLISH, 100}, {VERB_FORK, 60}, {VERB_TRUNCATE, 60},
        {VERB_PREEMPT, 50}, {VERB_RESUME, 60}, {VERB_RELEASE, 150}, {VERB_END_SESSION, 8},
        {VERB_TABLE, 10}, {VERB_FREE_LIST, 10}, {VERB_HOLDS, 10}, {VERB_EVICT, 15},
        {VERB_CLEAR, 3},
    };
    /* clang-format on */
    unsigned sum = 0, i = 0;

    for (size_t k = 0; k < sizeof(choices) / sizeof(choices[0]); k++)
        sum += choices[k].weight;
    for (unsigned at = below(random, sum); at >= choices[i].weight; i++)
        at -= choices[i].weight;
    text_clear(&random->line);
    random->next = (struct guess){.exists = true};
    random->verb = choices[i].verb;
    add_line(random);
    if (one_in(random, 100))
        spoil(random);
    return random->line.bytes;
}

const char *random_lines_observation(struct random_lines *random, size_t k)
{
    size_t num_payers = random->num_tenants + random->num_domains;

    text_clear(&random->line);
    if (k < 2) {
        text_add(&random->line, k ? "stats" : "check");
        return random->line.bytes;
    }
    k -= 2;
    for (unsigned model = 0; model < random->num_models; model++) {
        size_t num = random->num_groups[model] * num_payers;
        if (k < num) {
            unsigned payer = (unsigned)(k % num_payers);
            bool is_domain = payer >= random->num_tenants;
            text_add(&random->line, "free-list model=M%u group=%zu tenant=%c%u", model,
                     k / num_payers, is_domain ? 'D' : 'T',
                     is_domain ? payer - random->num_tenants : payer);
            return random->line.bytes;
        }
        k -= num;
    }
    if (k < NUM_NAMES) {
        text_add(&random->line, "table S%zu", k);
        return random->line.bytes;
    }
    return NULL;
}

/* ---- what the answers tell ---- */

static void learn_lengths(struct random_lines *random, struct guess *guess)
{
    switch (random->verb) {
    case VERB_APPEND:
        guess->length += random->number;
        break;
    case VERB_TRUNCATE:
        guess->length = random->number;
        break;
    case VERB_PREEMPT:
        guess->is_preempted = true;
        guess->is_unfilled = false;
        break;
    case VERB_RESUME:
        guess->is_preempted = false;
        guess->is_unfilled = random->next.is_unfilled;
        break;
    case VERB_FILL:
        guess->is_unfilled = false;
        break;
    case VERB_RELEASE:
        guess->exists = guess->is_preempted = guess->is_unfilled = false;
        break;
    default:
        break;
    }
}

void random_lines_learn(struct random_lines *random, const char *answer)
{
    if (strncmp(answer, "ok", 2) != 0)
        return;
    if (random->verb == VERB_ALLOC)
        random->guesses[random->name] = random->next;
    else if (random->verb == VERB_FORK)
        random->guesses[random->child] = random->guesses[random->name];
    else if (random->verb == VERB_END_SESSION)
        for (unsigned i = 0; i < NUM_NAMES; i++)
            random->guesses[i].exists &= random->guesses[i].session != random->session;
    else if (random->verb < VERB_TABLE)
        learn_lengths(random, &random->guesses[random->name]);
}
