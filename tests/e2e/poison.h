/*
 * tests/e2e/poison.h - engines that trust nobody: every block that they read says whose it is.
 *
 * A block's first words are its owner (a tenant, or the shared domain), the tokens of its whole
 * prefix, and the generation, which counts the operator's Clears; every other word follows from
 * them. Blocks of a prompt are written by whoever found them missing, and compared by whoever found
 * them. What is not exact, or of a time before a Clear, is wrong: such a block should have been a
 * miss.
 */
#pragma once

#include "client-lib/kvpool.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon;

enum {
    POISON_MODELS = 2,
    POISON_BLOCKS = 12, /* of a prompt at most */
    POISON_TOKENS = 16, /* of a block */
    POISON_SHARED = 2   /* the owner of what is in the shared domain; tenants are 0 and 1 */
};

/* Shared by all processes of a test. Counters of engines that were killed stay. */
struct poison_board {
    _Atomic bool must_stop;
    _Atomic uint64_t begun, cleared; /* Clears that were asked for, and that were answered */
    _Atomic uint64_t reads;          /* blocks that were found and compared; the next are of them */
    _Atomic uint64_t shared_reads;
    _Atomic uint64_t below;  /* found below the device */
    _Atomic uint64_t writes; /* blocks */
    _Atomic uint64_t rounds, lost, resumes, prefetches, forks, cancels, timeouts, failures;
    _Atomic uint64_t wrong, odd; /* wrong blocks; answers that make no sense */
    _Atomic bool has_text;
    char text[512]; /* the first of the wrong or odd */
};

struct poison_engine {
    struct poison_board *board;
    char dir[128];
    uint32_t owner;    /* 0: tenant a, by user id; 1: tenant b, by token. `a` fills domain `s` */
    uint32_t seed;     /* of what it does */
    uint32_t num_keys; /* prompts that there are */
    bool is_one_model; /* of blocks of 4,000 bytes */
    /* By poison_put_start(): 1 for each prompt whose publish was answered 0. */
    uint8_t *published;
};

struct poison_board *poison_board_make(void);
void poison_board_free(struct poison_board *board);

/* The domain `s` for the file of a daemon. */
#define POISON_DOMAINS "domains:\n  - {name: s, readers: [b], fillers: [a]}\n"

/* In a process of its own, until must_stop; daemons may die. */
pid_t poison_start(const struct poison_engine *engine);

/* Puts prompts @first and on into a process of its own, until must_stop or num_keys. */
pid_t poison_put_start(const struct poison_engine *engine, uint32_t first);

/* ---- for tests that go step by step ---- */

struct poison_client {
    const struct poison_engine *engine;
    struct kvpool *kvpool;
    uint32_t models[POISON_MODELS];
    uint64_t next_sequence;
    uint64_t random;
};

/* 0, or how it could not be had. */
int poison_connect(struct poison_client *client);
/* Writes what is missing of prompt @key, compares the rest. A status of kvpool. */
int poison_put(struct poison_client *client, uint32_t key);
/* Compares what is found of it; how much that is, in blocks, and how many it has. */
int poison_get(struct poison_client *client, uint32_t key, uint32_t *out_found,
               uint32_t *out_blocks);
