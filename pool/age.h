/*
 * pool/age.h - (internal) when a stamp of the order was given, about: how old the coldest block is.
 *
 * Slots carry a stamp and no time. Ticks sample which stamp was the last one when; once the samples
 * are full every other one goes, and from then on half as many are taken. So a time is known to
 * within 1/64 of the pool's life, or a second.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { AGE_SAMPLES = 128 };

struct ages {
    uint64_t stamps[AGE_SAMPLES], times_ms[AGE_SAMPLES]; /* ascending */
    uint32_t num;
    uint64_t every_ms;
    uint64_t start_ms; /* what no tick is older than was given since then, or in an earlier life */
};

/* @stamp is the last one that was given; @is_first: none was given in this life. */
void ages_tick(struct ages *ages, uint64_t stamp, bool is_first, uint64_t now_ms);
/* At most so long ago @stamp was given; in this life, if that was in an earlier one. */
uint64_t ages_of(const struct ages *ages, uint64_t stamp, uint64_t now_ms);
