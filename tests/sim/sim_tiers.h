/*
 * tests/sim/sim_tiers.h - tiers below the device: what is kept beside their slots, what may be
 * stored there, and what of it is left after a crash.
 */
#pragma once

#include "tests/sim/sim_verbs.h"

/* Whose (domain's) and which model's a sim_family() is. */
static inline uint32_t family_payer(uint32_t family)
{
    return family / SIM_MAX_GROUPS / SIM_MAX_MODELS;
}
static inline uint32_t family_model(uint32_t family)
{
    return family / SIM_MAX_GROUPS % SIM_MAX_MODELS;
}

/* ---- places and records (sim_places.c) ------------------------------------------------------ */

struct sim_record *record_at(struct sim *sim, uint32_t arena, uint32_t slot);
/* Of all rows of a slot. */
uint64_t rows_sum(const struct sim *sim, uint32_t arena, uint32_t slot);
/* Makes a random row of a slot another one. */
void rows_spoil(struct sim *sim, uint32_t arena, uint32_t slot);
/* Every row of a published block on the device is what its prefix makes of it. */
void place_check_rows(struct sim *sim, uint32_t arena, uint32_t slot,
                      const struct sim_stored *stored);
void place_set(struct sim *sim, uint32_t arena, uint32_t slot, struct sim_stored *stored);
void place_unset(struct sim *sim, uint32_t arena, uint32_t slot);
/* What the medium keeps of a published block, but for the sum. */
void record_set(struct sim *sim, struct sim_record *record, const struct sim_effect *effect,
                const struct sim_stored *stored);

/* sim_copies.c: the sum of what a copy writes */
uint64_t copy_sum(struct sim *sim, const struct sim_copy *copy);

/* ---- what may be stored (sim_want.c) -------------------------------------------------------- */

/*
 * Notes which blocks of a sequence somebody wants to be kept below the device: before its tokens
 * or its session's policy change. @length: tokens, with those that it is about to gain.
 */
void want_note(struct sim *sim, const struct sim_sequence *sequence, uint32_t length);
void want_note_session(struct sim *sim, uint32_t session);
/* Whether anybody ever did. */
bool want_is_noted(const struct sim *sim, uint32_t family, uint64_t hash);
/* Whether all who can have published it want it not to be stored. */
bool want_is_refused(const struct sim *sim, uint32_t family, uint64_t hash);
/* A copy to a tier below begins: is it to, and may it be? */
void want_check_store(struct sim *sim, const struct sim_copy *copy,
                      const struct sim_stored *stored);

/* ---- tiers between events (sim_below.c) ----------------------------------------------------- */

/* Ceilings of payers and tiers. After every event; @was_restored: quotas did not matter. */
void tiers_check_event(struct sim *sim, bool was_restored);
/* Sums over slots, payers and hits. */
void tiers_check(struct sim *sim);
void tiers_tick(struct sim *sim, uint64_t passed_ms);

/* ---- crashes (sim_restart.c) ---------------------------------------------------------------- */

/* After longjmp() out of an event: a new pool, over what is left. */
void sim_restart(struct sim *sim);
/* Restores what is still to be restored: before the end of a run. */
void sim_recover_all(struct sim *sim);
/* Calls that restore what cannot be: no effect. */
void restore_stray(struct sim *sim);
/* The granule is given memory anew, so nothing in it comes back. */
void survival_end(struct sim *sim, uint32_t arena, uint32_t granule);
/* sim_device.c: arenas have other numbers in the new pool. */
void device_move_arenas(struct sim *sim, const uint32_t *new_index);
/* Models and payers of a new pool are those of the last one. */
void sim_register(struct sim *sim);
