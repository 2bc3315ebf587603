/* client-lib/encode.c - public requests to messages, through one table of verbs. */
#include <errno.h>
#include <string.h>

#include "client-lib/encode.h"

static char *text(const char *string) /* protobuf-c has no const; it only reads */
{
    return (char *)(string ? string : "");
}

static ProtobufCBinaryData bytes(const void *data, size_t num_bytes)
{
    return (ProtobufCBinaryData){num_bytes, (uint8_t *)data};
}

static int encode_prompt(struct wire_arena *build, struct encode_scratch *scratch,
                         const struct kvpool_prompt *prompt)
{
    Kvpool__Wire__Prompt *wire = &scratch->prompt;

    if (!prompt || (prompt->num_tokens > 0 && !prompt->tokens))
        return -EINVAL;
    kvpool__wire__prompt__init(wire);
    wire->model = prompt->model; /* still ours: submit.c puts the daemon's handle in */
    wire->tokens = bytes(prompt->tokens, prompt->num_tokens * sizeof(*prompt->tokens));
    wire->shared_domain = text(prompt->shared_domain);
    wire->fill_domain = text(prompt->fill_domain);
    wire->salt = bytes(prompt->salt, prompt->salt_bytes);
    wire->adapter = text(prompt->adapter);
    wire->adapter_generation = prompt->adapter_generation;
    wire->raw = prompt->raw;

    if (prompt->num_extras == 0)
        return 0;
    if (prompt->num_extras > WIRE_MAX_EXTRAS)
        return -EMSGSIZE;
    Kvpool__Wire__Extra *extras =
        wire_arena_take(build, prompt->num_extras * sizeof(Kvpool__Wire__Extra));
    wire->extras = wire_arena_take(build, prompt->num_extras * sizeof(Kvpool__Wire__Extra *));
    if (!extras || !wire->extras)
        return -EMSGSIZE;
    wire->n_extras = prompt->num_extras;
    for (size_t i = 0; i < prompt->num_extras; i++) {
        kvpool__wire__extra__init(&extras[i]);
        extras[i].block = prompt->extras[i].block;
        extras[i].bytes = bytes(prompt->extras[i].bytes, prompt->extras[i].num_bytes);
        wire->extras[i] = &extras[i];
    }
    return 0;
}

static int encode_match(struct wire_arena *build, const struct kvpool_request *request,
                        struct encode_scratch *scratch)
{
    kvpool__wire__match__init(&scratch->match);
    scratch->match.prompt = &scratch->prompt;
    return encode_prompt(build, scratch, request->prompt);
}

static int encode_prefetch(struct wire_arena *build, const struct kvpool_request *request,
                           struct encode_scratch *scratch)
{
    kvpool__wire__prefetch__init(&scratch->prefetch);
    if (!request->prompt) {
        scratch->prefetch.of_sequence = true;
        scratch->prefetch.sequence = request->sequence;
        return 0;
    }
    scratch->prefetch.prompt = &scratch->prompt;
    return encode_prompt(build, scratch, request->prompt);
}

static int encode_allocate(struct wire_arena *build, const struct kvpool_request *request,
                           struct encode_scratch *scratch)
{
    kvpool__wire__allocate__init(&scratch->allocate);
    scratch->allocate.sequence = request->sequence;
    scratch->allocate.prompt = &scratch->prompt;
    scratch->allocate.unfilled = request->unfilled;
    scratch->allocate.has_take = request->has_take;
    scratch->allocate.take = request->take;
    scratch->allocate.want_table = request->tables != NULL;
    return encode_prompt(build, scratch, request->prompt);
}

static int encode_resume(struct wire_arena *build, const struct kvpool_request *request,
                         struct encode_scratch *scratch)
{
    (void)build;
    kvpool__wire__resume__init(&scratch->resume);
    scratch->resume.sequence = request->sequence;
    scratch->resume.unfilled = request->unfilled;
    scratch->resume.has_take = request->has_take;
    scratch->resume.take = request->take;
    scratch->resume.want_table = request->tables != NULL;
    return 0;
}

static int encode_append(struct wire_arena *build, const struct kvpool_request *request,
                         struct encode_scratch *scratch)
{
    (void)build;
    if (request->num_tokens > 0 && !request->tokens)
        return -EINVAL;
    kvpool__wire__append__init(&scratch->append);
    scratch->append.sequence = request->sequence;
    scratch->append.tokens = bytes(request->tokens, request->num_tokens * sizeof(uint32_t));
    scratch->append.want_table = request->tables != NULL;
    return 0;
}

static int encode_sequence(struct wire_arena *build, const struct kvpool_request *request,
                           struct encode_scratch *scratch)
{
    (void)build;
    kvpool__wire__sequence_ref__init(&scratch->sequence);
    scratch->sequence.sequence = request->sequence;
    scratch->sequence.want_table = request->tables != NULL;
    if (request->verb == KVPOOL_PUBLISH)
        scratch->sequence.num_tokens = request->length;
    return 0;
}

static int encode_fork(struct wire_arena *build, const struct kvpool_request *request,
                       struct encode_scratch *scratch)
{
    (void)build;
    kvpool__wire__fork__init(&scratch->fork);
    scratch->fork.sequence = request->sequence;
    scratch->fork.child = request->child;
    scratch->fork.want_table = request->tables != NULL;
    return 0;
}

static int encode_truncate(struct wire_arena *build, const struct kvpool_request *request,
                           struct encode_scratch *scratch)
{
    (void)build;
    kvpool__wire__truncate__init(&scratch->truncate);
    scratch->truncate.sequence = request->sequence;
    scratch->truncate.num_tokens = request->length;
    scratch->truncate.want_table = request->tables != NULL;
    return 0;
}

static int encode_write(struct wire_arena *build, const struct kvpool_request *request,
                        struct encode_scratch *scratch)
{
    const struct kvpool_blocks *blocks = request->blocks;
    (void)build;
    if (!blocks || (blocks->num_blocks > 0 && blocks->data_bytes % blocks->num_blocks))
        return -EINVAL;
    kvpool__wire__write__init(&scratch->write);
    scratch->write.sequence = blocks->sequence;
    scratch->write.group = blocks->group;
    scratch->write.first_block = blocks->first_block;
    scratch->write.num_blocks = blocks->num_blocks;
    scratch->write.in_staging = blocks->data == NULL;
    scratch->write.offset = blocks->staging_offset;
    return 0;
}

static int encode_read(struct wire_arena *build, const struct kvpool_request *request,
                       struct encode_scratch *scratch)
{
    const struct kvpool_blocks *blocks = request->blocks;
    (void)build;
    if (!blocks || (blocks->num_blocks > 0 && blocks->data_bytes % blocks->num_blocks))
        return -EINVAL;
    kvpool__wire__read__init(&scratch->read);
    scratch->read.sequence = blocks->sequence;
    scratch->read.group = blocks->group;
    scratch->read.first_block = blocks->first_block;
    scratch->read.num_blocks = blocks->num_blocks;
    scratch->read.in_staging = blocks->data == NULL;
    scratch->read.offset = blocks->staging_offset;
    return 0;
}

static int encode_step(struct wire_arena *build, const struct kvpool_request *request,
                       struct encode_scratch *scratch)
{
    size_t num = request->num_rows;

    if (num == 0 || !request->rows)
        return -EINVAL;
    if (num > WIRE_MAX_ROWS)
        return -EMSGSIZE;
    Kvpool__Wire__Row *rows = wire_arena_take(build, num * sizeof(*rows));
    Kvpool__Wire__Row **list = wire_arena_take(build, num * sizeof(Kvpool__Wire__Row *));
    if (!rows || !list)
        return -EMSGSIZE;
    for (size_t i = 0; i < num; i++) {
        const struct kvpool_row *row = &request->rows[i];
        if (!row->tokens)
            return -EINVAL;
        kvpool__wire__row__init(&rows[i]);
        rows[i].sequence = row->sequence;
        rows[i].tokens = bytes(row->tokens, row->num_tokens * sizeof(uint32_t));
        list[i] = &rows[i];
    }
    kvpool__wire__step__init(&scratch->step);
    scratch->step.n_rows = num;
    scratch->step.rows = list;
    return 0;
}

static int encode_attend(struct wire_arena *build, const struct kvpool_request *request,
                         struct encode_scratch *scratch)
{
    const struct kvpool_attend *attend = request->attend;
    (void)build;
    if (!attend)
        return -EINVAL;
    kvpool__wire__attend__init(&scratch->attend);
    scratch->attend.step = attend->step;
    scratch->attend.layer = attend->layer;
    scratch->attend.dtype = attend->dtype;
    scratch->attend.q_offset = attend->q_offset;
    scratch->attend.k_offset = attend->k_offset;
    scratch->attend.v_offset = attend->v_offset;
    scratch->attend.out_offset = attend->out_offset;
    scratch->attend.want_lse = attend->want_lse;
    scratch->attend.lse_offset = attend->lse_offset;
    scratch->attend.scale = attend->scale;
    scratch->attend.soft_cap = attend->soft_cap;
    scratch->attend.has_sinks = attend->has_sinks;
    scratch->attend.sinks_offset = attend->sinks_offset;
    return 0;
}

static int encode_end_step(struct wire_arena *build, const struct kvpool_request *request,
                           struct encode_scratch *scratch)
{
    (void)build;
    kvpool__wire__end_step__init(&scratch->end_step);
    scratch->end_step.step = request->step;
    scratch->end_step.abandon = request->abandon;
    return 0;
}

static int encode_cancel(struct wire_arena *build, const struct kvpool_request *request,
                         struct encode_scratch *scratch)
{
    (void)build;
    kvpool__wire__cancel__init(&scratch->cancel);
    scratch->cancel.request = request->ticket;
    return 0;
}

static int encode_stats(struct wire_arena *build, const struct kvpool_request *request,
                        struct encode_scratch *scratch)
{
    (void)build, (void)request;
    kvpool__wire__stats_request__init(&scratch->stats);
    scratch->stats.want_events = request->want_events;
    scratch->stats.after = request->after;
    return 0;
}

/* clang-format off */
#define VERB(name, encode) {KVPOOL__WIRE__REQUEST__VERB_##name, encode}

static const struct {
    uint32_t verb_case;
    int (*encode)(struct wire_arena *build, const struct kvpool_request *request,
                  struct encode_scratch *scratch);
} verb_rows[KVPOOL_NUM_VERBS] = {
    [KVPOOL_MATCH]         = VERB(MATCH,         encode_match),
    [KVPOOL_WAIT_ARRIVING] = VERB(WAIT_ARRIVING, encode_match),
    [KVPOOL_PREFETCH]      = VERB(PREFETCH,      encode_prefetch),
    [KVPOOL_ALLOCATE]      = VERB(ALLOCATE,      encode_allocate),
    [KVPOOL_RESUME]        = VERB(RESUME,        encode_resume),
    [KVPOOL_APPEND]        = VERB(APPEND,        encode_append),
    [KVPOOL_FILL]          = VERB(FILL,          encode_sequence),
    [KVPOOL_PUBLISH]       = VERB(PUBLISH,       encode_sequence),
    [KVPOOL_PREEMPT]       = VERB(PREEMPT,       encode_sequence),
    [KVPOOL_RELEASE]       = VERB(RELEASE,       encode_sequence),
    [KVPOOL_FORK]          = VERB(FORK,          encode_fork),
    [KVPOOL_TRUNCATE]      = VERB(TRUNCATE,      encode_truncate),
    [KVPOOL_WRITE]         = VERB(WRITE,         encode_write),
    [KVPOOL_READ]          = VERB(READ,          encode_read),
    [KVPOOL_STEP]          = VERB(STEP,          encode_step),
    [KVPOOL_ATTEND]        = VERB(ATTEND,        encode_attend),
    [KVPOOL_END_STEP]      = VERB(END_STEP,      encode_end_step),
    [KVPOOL_CANCEL]        = VERB(CANCEL,        encode_cancel),
    [KVPOOL_STATS]         = VERB(STATS,         encode_stats),
    [KVPOOL_DRAIN]         = VERB(DRAIN,         encode_drain),
    [KVPOOL_CLEAR]         = VERB(CLEAR,         encode_clear),
    [KVPOOL_SET_QUOTA]     = VERB(SET_QUOTA,     encode_set_quota),
    [KVPOOL_CREATE_DOMAIN] = VERB(CREATE_DOMAIN, encode_create_domain),
    [KVPOOL_LIST]          = VERB(LIST,          encode_list),
    [KVPOOL_KICK]          = VERB(KICK,          encode_kick),
    [KVPOOL_SHUTDOWN]      = VERB(SHUTDOWN,      encode_shutdown),
};
/* clang-format on */

int encode_request(struct wire_arena *build, const struct kvpool_request *request,
                   struct encode_scratch *scratch, Kvpool__Wire__Request *wire)
{
    build->used = 0;
    if (request->verb <= 0 || request->verb >= KVPOOL_NUM_VERBS)
        return -EINVAL;
    wire->verb_case = verb_rows[request->verb].verb_case;
    wire->match = &scratch->match; /* any member: all are pointers to the same place */
    return verb_rows[request->verb].encode(build, request, scratch);
}
