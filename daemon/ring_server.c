/* daemon/ring_server.c - entries become the same requests that the wire carries. */
#include "daemon/ring_server.h"

#include "daemon/server.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define REQUEST(NAME) KVPOOL__WIRE__REQUEST__VERB_##NAME

int rings_init(struct server *server)
{
    struct ring_server *rings = &server->rings;
    uint64_t max_rows = server->config->max_step_rows;

    rings->spin_us = server->config->spin_us;
    rings->open = calloc(server->config->max_sessions, sizeof(*rings->open));
    rings->rows = calloc(max_rows, sizeof(*rings->rows));
    rings->row_list = calloc(max_rows, sizeof(*rings->row_list));
    rings->tokens = calloc(STEP_MAX_TOKENS, sizeof(*rings->tokens));
    return rings->open && rings->rows && rings->row_list && rings->tokens ? 0 : -ENOMEM;
}

void rings_finish(struct server *server)
{
    free(server->rings.open);
    free(server->rings.rows);
    free(server->rings.row_list);
    free(server->rings.tokens);
}

void ring_session_opened(struct server *server, struct session *session)
{
    server->rings.open[server->rings.num_open++] = sessions_index(server, session);
    server->rings.are_armed = false;
}

void ring_session_ended(struct server *server, struct session *session)
{
    struct ring_server *rings = &server->rings;
    uint32_t index = sessions_index(server, session);

    for (uint32_t at = 0; at < rings->num_open; at++) {
        if (rings->open[at] != index)
            continue;
        rings->open[at] = rings->open[--rings->num_open];
        return;
    }
}

/* ---- completions ---------------------------------------------------------------------------- */

void ring_complete(struct server *server, struct session *session, const wire_reply *reply)
{
    struct ring_state *ring = &session->ring;
    struct ring_words *words = &ring->header->completions;
    struct ring_completion *completion = &ring->completions[ring->tail % RING_ENTRIES];
    const uint64_t one = 1;

    (void)server;
    if (session->state != SESSION_OPEN)
        return;
    /* There is room: no more submissions are taken than completions fit (see room_left). */
    *completion = (struct ring_completion){.id = reply->id, .status = reply->status};
    if (reply->result_case == KVPOOL__WIRE__REPLY__RESULT_STEP) {
        completion->object = reply->step->step;
        completion->value = reply->step->num_rows;
    }
    ring->num_pending--;
    atomic_store_explicit(&words->tail, ++ring->tail, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* partner: the client arms, then looks once more */
    if (atomic_load_explicit(&words->armed, memory_order_relaxed) &&
        atomic_exchange(&words->armed, 0))
        (void)!write(session->to_client_fd, &one, sizeof(one)); /* full: it is readable anyway */
}

static void complete_early(struct server *server, struct session *session, uint64_t id,
                           enum wire_status status)
{
    wire_reply reply = KVPOOL__WIRE__REPLY__INIT;

    reply.id = id;
    reply.status = status;
    server->rings.num_malformed += status == STATUS_MALFORMED;
    ring_complete(server, session, &reply);
}

/* ---- submissions ---------------------------------------------------------------------------- */

static void dispatch(struct server *server, struct session *session,
                     const struct ring_submission *entry, uint32_t verb, const void *message)
{
    const struct origin origin = {.id = entry->id, .is_ring = true};

    dispatch_request(server, session, &origin, verb, message, 0, NULL);
}

/* Copies the rows and their tokens, then believes the copies. */
static void step_entry(struct server *server, struct session *session,
                       const struct ring_submission *entry)
{
    struct ring_server *rings = &server->rings;
    const struct ring_state *ring = &session->ring;
    Kvpool__Wire__Step step = KVPOOL__WIRE__STEP__INIT;
    uint64_t num_tokens = 0;
    const char *what;

    if (entry->value == 0 || entry->value > server->config->max_step_rows ||
        !ring_span_fits(entry->rows_offset, entry->value * sizeof(struct ring_row),
                        ring->data_bytes)) {
        complete_early(server, session, entry->id, STATUS_LIMIT);
        return;
    }
    for (uint64_t at = 0; at < entry->value; at++) {
        struct ring_row row;
        memcpy(&row, ring->data + entry->rows_offset + at * sizeof(row), sizeof(row));
        if (ring_row_check(&row, ring->data_bytes, &what) ||
            row.num_tokens > STEP_MAX_TOKENS - num_tokens) {
            complete_early(server, session, entry->id, STATUS_MALFORMED);
            return;
        }
        memcpy(&rings->tokens[num_tokens], ring->data + row.tokens_offset,
               row.num_tokens * sizeof(uint32_t));
        kvpool__wire__row__init(&rings->rows[at]);
        rings->rows[at].sequence = row.sequence;
        rings->rows[at].tokens.data = (uint8_t *)&rings->tokens[num_tokens];
        rings->rows[at].tokens.len = row.num_tokens * sizeof(uint32_t);
        rings->row_list[at] = &rings->rows[at];
        num_tokens += row.num_tokens;
    }
    step.rows = rings->row_list;
    step.n_rows = entry->value;
    dispatch(server, session, entry, REQUEST(STEP), &step);
}

static void attend_entry(struct server *server, struct session *session,
                         const struct ring_submission *entry)
{
    Kvpool__Wire__Attend attend = KVPOOL__WIRE__ATTEND__INIT;

    attend.step = entry->object;
    attend.layer = entry->layer;
    attend.dtype = entry->dtype;
    attend.q_offset = entry->q_offset;
    attend.k_offset = entry->k_offset;
    attend.v_offset = entry->v_offset;
    attend.out_offset = entry->out_offset;
    attend.want_lse = (entry->flags & RING_WANT_LSE) != 0;
    attend.lse_offset = entry->lse_offset;
    attend.scale = entry->scale;
    attend.soft_cap = entry->soft_cap;
    attend.has_sinks = (entry->flags & RING_HAS_SINKS) != 0;
    attend.sinks_offset = entry->sinks_offset;
    dispatch(server, session, entry, REQUEST(ATTEND), &attend);
}

static void sequence_entry(struct server *server, struct session *session,
                           const struct ring_submission *entry)
{
    Kvpool__Wire__SequenceRef ref = KVPOOL__WIRE__SEQUENCE_REF__INIT;
    Kvpool__Wire__Truncate truncate = KVPOOL__WIRE__TRUNCATE__INIT;
    Kvpool__Wire__Fork fork = KVPOOL__WIRE__FORK__INIT;
    Kvpool__Wire__EndStep end = KVPOOL__WIRE__END_STEP__INIT;

    switch (entry->verb) {
    case RING_END_STEP:
        end.step = entry->object;
        end.abandon = (entry->flags & RING_ABANDON) != 0;
        dispatch(server, session, entry, REQUEST(END_STEP), &end);
        break;
    case RING_TRUNCATE:
        truncate.sequence = entry->object;
        truncate.num_tokens = entry->value;
        dispatch(server, session, entry, REQUEST(TRUNCATE), &truncate);
        break;
    case RING_FORK:
        fork.sequence = entry->object;
        fork.child = entry->value;
        dispatch(server, session, entry, REQUEST(FORK), &fork);
        break;
    default:
        ref.sequence = entry->object;
        ref.num_tokens = entry->verb == RING_PUBLISH ? entry->value : 0;
        dispatch(server, session, entry,
                 entry->verb == RING_PUBLISH ? REQUEST(PUBLISH) : REQUEST(RELEASE), &ref);
    }
}

static void carry_out(struct server *server, struct session *session,
                      const struct ring_submission *entry)
{
    const char *what;
    int status = ring_submission_check(entry, session->ring.data_bytes, &what);

    if (status)
        complete_early(server, session, entry->id, (enum wire_status)status);
    else if (entry->verb == RING_STEP)
        step_entry(server, session, entry);
    else if (entry->verb == RING_ATTEND)
        attend_entry(server, session, entry);
    else
        sequence_entry(server, session, entry);
}

/* Completions that fit behind those that the client has not consumed, as far as it says so. */
static bool room_left(const struct ring_state *ring)
{
    uint64_t consumed = atomic_load_explicit(&ring->header->completions.head, memory_order_acquire);

    return ring->tail - consumed + ring->num_pending < RING_ENTRIES;
}

/*
 * Takes entries of one session. Hot path: no allocation, no lock, no system call, no log, until an
 * entry asks for one.
 */
static uint32_t ring_run(struct server *server, struct session *session)
{
    struct ring_state *ring = &session->ring;
    struct ring_words *words = &ring->header->submissions;
    uint32_t count = 0;

    while (count < RING_BATCH && session->state == SESSION_OPEN) {
        uint64_t tail = atomic_load_explicit(&words->tail, memory_order_acquire);
        if (tail - ring->head > RING_ENTRIES) {
            server->rings.num_malformed++;
            session_end(server, session, "its ring's tail ran away");
            break;
        }
        if (tail == ring->head || !room_left(ring))
            break;
        const struct ring_submission entry = ring->submissions[ring->head % RING_ENTRIES];
        ring->head++;
        ring->num_pending++;
        count++;
        atomic_store_explicit(&words->head, ring->head, memory_order_release);
        carry_out(server, session, &entry);
    }
    return count;
}

bool rings_run(struct server *server)
{
    struct ring_server *rings = &server->rings;
    uint64_t count = 0;

    for (uint32_t at = rings->num_open; at-- > 0;) {
        if (at < rings->num_open) /* one of them may have ended meanwhile */
            count += ring_run(server, &server->sessions.sessions[rings->open[at]]);
    }
    rings->num_entries += count;
    if (count > 0) {
        rings->last_us = server_now_us();
        rings->are_armed = false;
    }
    return count > 0;
}

/* ---- sleep ---------------------------------------------------------------------------------- */

static bool ring_arm(struct session *session)
{
    struct ring_state *ring = &session->ring;
    struct ring_words *words = &ring->header->submissions;

    atomic_store_explicit(&words->armed, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* partner: the client's tail, then it reads armed */
    uint64_t tail = atomic_load_explicit(&words->tail, memory_order_acquire);
    return tail - ring->head <= RING_ENTRIES && (tail == ring->head || !room_left(ring));
}

bool rings_may_sleep(struct server *server)
{
    struct ring_server *rings = &server->rings;
    bool is_quiet = true;

    if (rings->are_armed || rings->num_open == 0)
        return true;
    if (rings->last_us > 0 && server_now_us() - rings->last_us < rings->spin_us &&
        server_may_spin(server))
        return false;
    for (uint32_t at = 0; at < rings->num_open; at++)
        is_quiet &= ring_arm(&server->sessions.sessions[rings->open[at]]);
    rings->are_armed = is_quiet;
    return is_quiet;
}

void ring_ready(struct server *server, struct source *source, uint32_t events)
{
    uint64_t count;

    (void)events;
    (void)!read(source->fd, &count, sizeof(count));
    server->rings.num_wakes++;
    server->rings.are_armed = false;
    server->rings.last_us = server_now_us();
}
