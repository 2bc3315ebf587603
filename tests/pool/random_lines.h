/* tests/pool/random_lines.h - internal: makes up the lines of the random test. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct random_lines;

struct random_lines *random_lines_create(uint64_t seed);
void random_lines_destroy(struct random_lines *random);

/* Each line is the caller's to read until the next call. */
const char *random_lines_next_setup(struct random_lines *random); /* NULL: all declared */
const char *random_lines_next(struct random_lines *random);
/* The k-th of the lines that show everything: check, stats, free-lists, tables. NULL: no more. */
const char *random_lines_observation(struct random_lines *random, size_t k);
/* Tells it the answer to the last line of next(), so that most lines name sequences that exist. */
void random_lines_learn(struct random_lines *random, const char *answer);
