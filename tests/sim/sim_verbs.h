/* tests/sim/sim_verbs.h - every event: what may happen next. The table is in sim_events.c. */
#pragma once

#include "tests/sim/sim.h"

/* sim_verbs.c: verbs of a sequence */
void event_alloc(struct sim *sim);
void event_match(struct sim *sim);
void event_fill(struct sim *sim);
void event_append(struct sim *sim);
void event_publish(struct sim *sim);
void event_fork(struct sim *sim);
void event_truncate(struct sim *sim);
void event_release(struct sim *sim);
void event_preempt(struct sim *sim);
void event_resume(struct sim *sim);
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

/* An answer that is 0 or one of a set of enum pool_answer. */
#define MAY(answer) (1U << (answer))
void expect_answer(struct sim *sim, const char *verb, int answer, unsigned allowed);
/* One of them must come, and not 0. */
void expect_refusal(struct sim *sim, const char *verb, int answer, unsigned allowed);

/* Mostly one that can do it, at times any; NULL: there is none. */
struct sim_sequence *pick_sequence(struct sim *sim, sim_filter *can);

bool is_mapped_and_whole(const struct sim_sequence *sequence);
/* Before it says that tokens are filled or may be published, an engine has written them. */
void write_up_to(struct sim *sim, struct sim_sequence *sequence, uint32_t end);
