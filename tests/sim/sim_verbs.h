/* tests/sim/sim_verbs.h - every event: what may happen next. The table is in sim_events.c. */
#pragma once

#include "tests/sim/sim.h"

/* sim_alloc.c: verbs that match */
void event_match(struct sim *sim);
void event_alloc(struct sim *sim);
void event_resume(struct sim *sim);
void event_prefetch(struct sim *sim);
void event_prefetch_sequence(struct sim *sim);

/* sim_verbs.c: verbs of a sequence */
void event_fill(struct sim *sim);
void event_append(struct sim *sim);
void event_publish(struct sim *sim);
void event_fork(struct sim *sim);
void event_truncate(struct sim *sim);
void event_release(struct sim *sim);
void event_preempt(struct sim *sim);
void event_branch(struct sim *sim);
void event_inspect(struct sim *sim);

/* sim_mapped.c */
void event_write(struct sim *sim);
void event_publish_up_to(struct sim *sim);

/* sim_steps.c */
void event_step_begin(struct sim *sim);
void event_attend(struct sim *sim);
void event_attend_part(struct sim *sim);
void event_attend_end(struct sim *sim);
void event_step_end(struct sim *sim);
void event_step_whole(struct sim *sim);

/* sim_waits.c: single flight and clocks */
void event_wait(struct sim *sim);
void event_cancel(struct sim *sim);
void event_tick(struct sim *sim);

/* sim_operator.c: sessions, operators, devices */
void event_session_open(struct sim *sim);
void event_session_end(struct sim *sim);
void event_session_vanish(struct sim *sim);
void event_session_detach(struct sim *sim);
void event_session_linger(struct sim *sim);
void event_advance(struct sim *sim);
void event_copy_part(struct sim *sim);
void event_copy_end(struct sim *sim);
void event_stray(struct sim *sim);
void event_free_slots(struct sim *sim);
void event_evict(struct sim *sim);
void event_clear(struct sim *sim);
void event_drain(struct sim *sim);
void event_quota(struct sim *sim);
void event_grant(struct sim *sim);
void event_check(struct sim *sim);

/* sim_below.c: tiers below the device */
void event_churn(struct sim *sim);
void event_tier_set(struct sim *sim);
void event_tier_quota(struct sim *sim);
void event_tier_evict(struct sim *sim);
void event_tier_stall(struct sim *sim);
void event_bit_flip(struct sim *sim);
void event_set_store(struct sim *sim);

/* sim_restart.c */
void event_crash(struct sim *sim);
void event_recover(struct sim *sim);

/* What can always be in the way of something that takes slots. */
#define NO_ROOM (MAY(POOL_NEVER_FITS) | MAY(POOL_QUOTA) | MAY(POOL_NO_BLOCKS) | MAY(POOL_LIMIT))

/* An answer that is 0 or one of a set of enum pool_answer. */
#define MAY(answer) (1U << (answer))
void expect_answer(struct sim *sim, const char *verb, int answer, unsigned allowed);
/* One of them must come, and not 0. */
void expect_refusal(struct sim *sim, const char *verb, int answer, unsigned allowed);

/* Mostly one that can do it, at times any; NULL: there is none. */
struct sim_sequence *pick_sequence(struct sim *sim, sim_filter *can);

struct sim_sequence *free_sequence(struct sim *sim);

/* A digest before a verb now and then (slices would change it by themselves), to compare after. */
uint64_t digest_before(struct sim *sim);
void digest_after(struct sim *sim, uint64_t before, int answer);

bool is_mapped_and_whole(const struct sim_sequence *sequence);
/* Before it says that tokens are filled or may be published, an engine has written them. */
void write_up_to(struct sim *sim, struct sim_sequence *sequence, uint32_t end);
