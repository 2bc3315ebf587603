/*
 * tests/pool/fixture.h - a small pool for unit tests, a sink that remembers, and one-line verbs.
 *
 * Blocks have 4 tokens. Text @seed is the tokens seed * 1000, seed * 1000 + 1 ...; keys are made
 * from all tokens before, the domain and the model, as proto/ does. Payer 0 is a tenant, model 0
 * has two layers and one full group, a page has one block of it; session 0 is open. After every
 * verb the pool's invariants are checked.
 */
#pragma once

#include "pool/pool.h"
#include "tests/support/test.h"

enum { FIXTURE_BLOCK = 4, FIXTURE_MAX_EFFECTS = 4096 };

struct fixture {
    struct pool *pool;
    struct pool_found found; /* of the last allocation, resume or match that was granted */
    struct pool_effect effects[FIXTURE_MAX_EFFECTS];
    struct pool_key keys[FIXTURE_MAX_EFFECTS]; /* those that effects point to */
    struct pool_key parents[FIXTURE_MAX_EFFECTS];
    uint32_t tokens[FIXTURE_MAX_EFFECTS][FIXTURE_BLOCK]; /* the first ones */
    uint32_t forms[FIXTURE_MAX_EFFECTS][FIXTURE_BLOCK];
    uint32_t num_effects;
};

/* What an allocation asks for; everything may be left out but count. */
struct request {
    uint64_t id;
    pool_session session;
    pool_payer tenant;
    pool_payer domain; /* 0: the tenant's own */
    pool_payer shared; /* 0: none */
    pool_model model;
    uint32_t seed;
    uint64_t count;
    uint64_t take; /* 0: all */
    bool is_raw, is_mapped, is_unfilled;
    uint64_t cookie, deadline_ms; /* if it has to wait */
};

/* Caps that no small test reaches, one device of @pages. */
void fixture_config(struct pool_config *config, uint64_t pages);
/* The caller's config, with the fixture's sink. */
struct fixture *fixture_create_with(const struct pool_config *config);
struct fixture *fixture_create(uint64_t pages);
/*
 * With tiers below: so many pages of each, 0 for none, of one block each (10 bytes). Copies are
 * made while less than @ahead pages of the device are left. Places are told.
 */
void fixture_tiers_config(struct pool_config *config, uint64_t pages, uint64_t host, uint64_t disk,
                          uint64_t ahead);
struct fixture *fixture_create_tiers(uint64_t pages, uint64_t host, uint64_t disk, uint64_t ahead);
void fixture_destroy(struct fixture *f);
/* cmocka: 8 pages. */
int fixture_setup(void **state);
int fixture_teardown(void **state);
#define pool_test(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

pool_payer add_tenant(struct fixture *f, uint64_t guarantee, uint64_t limit, uint64_t weight);
/* A shared domain that tenant 0 may read. */
pool_payer add_domain(struct fixture *f);
/* One group: its window (0: full), and the blocks and pages of a granule. */
pool_model add_model(struct fixture *f, uint32_t window, uint32_t slots, uint32_t pages);
/* Two groups, of one block a page: full, and sliding (0: full too). */
pool_model add_model_of_two(struct fixture *f, uint32_t window);
pool_session add_session(struct fixture *f);

/* ---- verbs: the pool's answer ---- */

int request_alloc(struct fixture *f, const struct request *request);
int request_match(struct fixture *f, const struct request *request);
int request_wait(struct fixture *f, const struct request *request, uint64_t deadline_ms,
                 uint64_t cookie);
#define alloc(f, ...) request_alloc(f, &(struct request){__VA_ARGS__})
#define match(f, ...) request_match(f, &(struct request){__VA_ARGS__})
/* An allocation of text @seed by tenant 0 in session 0, and its publication. */
void must_alloc(struct fixture *f, uint64_t id, uint32_t seed, uint64_t count);
/* The next @count tokens of text @seed, as if the sequence had been that text so far. */
int append(struct fixture *f, uint64_t id, uint32_t seed, uint64_t count, uint64_t cookie);
int publish(struct fixture *f, uint64_t id);
int fill(struct fixture *f, uint64_t id);
int fork_to(struct fixture *f, uint64_t id, uint64_t child);
int truncate_to(struct fixture *f, uint64_t id, uint64_t num_tokens, uint64_t cookie);
int release(struct fixture *f, uint64_t id, uint64_t cookie);
int preempt(struct fixture *f, uint64_t id, uint64_t cookie);
int resume(struct fixture *f, uint64_t id);
/* @take: only so many tokens beyond the match, 0: all. */
int resume_waiting(struct fixture *f, uint64_t id, uint64_t take, uint64_t cookie,
                   uint64_t deadline_ms);
int request_prefetch(struct fixture *f, const struct request *request,
                     struct pool_prefetched *out_prefetched);
#define prefetch(f, out, ...) request_prefetch(f, &(struct request){__VA_ARGS__}, out)

/* A step of session 0: rows as pairs (sequence, count), each row goes on with text @seed. */
struct row {
    uint64_t sequence, count;
};
int step_begin(struct fixture *f, const struct row *rows, uint32_t num_rows, uint32_t seed,
               uint64_t cookie, pool_step *out_step);
int step_one(struct fixture *f, uint64_t id, uint32_t seed, uint64_t count, pool_step *out_step);
/* Queues an attend of one layer and ends it. */
void attend(struct fixture *f, pool_step step, uint32_t layer);

/* Ends the @nth copy (from 0) that was ever begun. */
int copy_done(struct fixture *f, uint32_t nth, int error);
/* Ends all copies from the @nth on, well; returns how many. */
uint32_t copies_done(struct fixture *f, uint32_t nth);
void advance(struct fixture *f);

/* ---- what is there ---- */

uint64_t stat_of(const struct fixture *f, const char *name);
uint32_t count_effects(const struct fixture *f, enum pool_effect_kind kind);
/* The @nth effect of that kind. */
const struct pool_effect *nth_effect(const struct fixture *f, enum pool_effect_kind kind,
                                     uint32_t nth);
/* Replies with that cookie. */
uint32_t count_replies(const struct fixture *f, uint64_t cookie);
uint32_t arena_of(const struct fixture *f, pool_payer payer, pool_model model, uint32_t group);
uint32_t tier_arena_of(const struct fixture *f, pool_payer payer, pool_model model, uint32_t group,
                       enum pool_tier tier);
struct pool_tier_stats tier_stats(const struct fixture *f, enum pool_tier tier);
uint64_t length_of(const struct fixture *f, uint64_t id);
uint64_t complete_of(const struct fixture *f, uint64_t id);

/* "1,2,0;3": groups by ';', a block of the shared domain's arena "s5". */
void assert_table(struct fixture *f, uint64_t id, const char *expected);
/* Tenant 0, model 0, group 0: slots in the order in which they will be taken. */
void assert_free(struct fixture *f, const char *expected);
void assert_evictable(struct fixture *f, const char *expected);
/* The same of a tier below. */
void assert_tier_evictable(struct fixture *f, enum pool_tier tier, const char *expected);
/* Exactly one reply to @cookie so far, and it is @answer. */
void assert_reply(struct fixture *f, uint64_t cookie, int answer);
/* The sequence's tokens are the first @count of text @seed. */
void assert_text(struct fixture *f, uint64_t id, uint32_t seed, uint64_t count);
