/* client-lib/verbs.c - the synchronous verbs: a request each, and its result. */
#include "client-lib/client.h"

static int call_prompt(struct kvpool *client, enum kvpool_verb verb,
                       const struct kvpool_prompt *prompt, uint32_t deadline_ms,
                       struct kvpool_result *out_result)
{
    return kvpool_call(
        client,
        &(struct kvpool_request){.verb = verb, .prompt = prompt, .deadline_ms = deadline_ms},
        out_result);
}

int kvpool_match(struct kvpool *client, const struct kvpool_prompt *prompt,
                 struct kvpool_result *out_result)
{
    return call_prompt(client, KVPOOL_MATCH, prompt, 0, out_result);
}

int kvpool_wait_arriving(struct kvpool *client, const struct kvpool_prompt *prompt,
                         uint32_t deadline_ms, struct kvpool_result *out_result)
{
    return call_prompt(client, KVPOOL_WAIT_ARRIVING, prompt, deadline_ms, out_result);
}

int kvpool_prefetch(struct kvpool *client, const struct kvpool_prompt *prompt,
                    struct kvpool_result *out_result)
{
    return call_prompt(client, KVPOOL_PREFETCH, prompt, 0, out_result);
}

int kvpool_prefetch_sequence(struct kvpool *client, uint64_t sequence,
                             struct kvpool_result *out_result)
{
    return kvpool_call(client,
                       &(struct kvpool_request){.verb = KVPOOL_PREFETCH, .sequence = sequence},
                       out_result);
}

static int call_allocate(struct kvpool *client, struct kvpool_request request,
                         const struct kvpool_allocate_options *options,
                         struct kvpool_result *out_result)
{
    if (options) {
        request.unfilled = options->unfilled;
        request.has_take = options->has_take;
        request.take = options->take;
        request.tables = options->tables;
        request.num_tables = options->num_tables;
    }
    return kvpool_call(client, &request, out_result);
}

int kvpool_allocate(struct kvpool *client, uint64_t sequence, const struct kvpool_prompt *prompt,
                    const struct kvpool_allocate_options *options, struct kvpool_result *out_result)
{
    struct kvpool_request request = {
        .verb = KVPOOL_ALLOCATE, .sequence = sequence, .prompt = prompt};
    return call_allocate(client, request, options, out_result);
}

int kvpool_resume(struct kvpool *client, uint64_t sequence,
                  const struct kvpool_allocate_options *options, struct kvpool_result *out_result)
{
    struct kvpool_request request = {.verb = KVPOOL_RESUME, .sequence = sequence};
    return call_allocate(client, request, options, out_result);
}

int kvpool_append(struct kvpool *client, uint64_t sequence, const uint32_t *tokens,
                  size_t num_tokens, struct kvpool_result *out_result)
{
    struct kvpool_request request = {
        .verb = KVPOOL_APPEND, .sequence = sequence, .tokens = tokens, .num_tokens = num_tokens};
    return kvpool_call(client, &request, out_result);
}

static int call_sequence(struct kvpool *client, enum kvpool_verb verb, uint64_t sequence)
{
    return kvpool_call(client, &(struct kvpool_request){.verb = verb, .sequence = sequence}, NULL);
}

int kvpool_fill(struct kvpool *client, uint64_t sequence)
{
    return call_sequence(client, KVPOOL_FILL, sequence);
}

int kvpool_publish(struct kvpool *client, uint64_t sequence)
{
    return call_sequence(client, KVPOOL_PUBLISH, sequence);
}

int kvpool_publish_up_to(struct kvpool *client, uint64_t sequence, uint64_t num_tokens)
{
    struct kvpool_request request = {
        .verb = KVPOOL_PUBLISH, .sequence = sequence, .length = num_tokens};
    return num_tokens > 0 ? kvpool_call(client, &request, NULL) : 0;
}

int kvpool_preempt(struct kvpool *client, uint64_t sequence)
{
    return call_sequence(client, KVPOOL_PREEMPT, sequence);
}

int kvpool_release(struct kvpool *client, uint64_t sequence)
{
    return call_sequence(client, KVPOOL_RELEASE, sequence);
}

int kvpool_truncate(struct kvpool *client, uint64_t sequence, uint64_t length)
{
    struct kvpool_request request = {
        .verb = KVPOOL_TRUNCATE, .sequence = sequence, .length = length};
    return kvpool_call(client, &request, NULL);
}

int kvpool_fork(struct kvpool *client, uint64_t sequence, uint64_t child)
{
    struct kvpool_request request = {.verb = KVPOOL_FORK, .sequence = sequence, .child = child};
    return kvpool_call(client, &request, NULL);
}

int kvpool_write(struct kvpool *client, const struct kvpool_blocks *blocks)
{
    return kvpool_call(client, &(struct kvpool_request){.verb = KVPOOL_WRITE, .blocks = blocks},
                       NULL);
}

int kvpool_read(struct kvpool *client, const struct kvpool_blocks *blocks)
{
    return kvpool_call(client, &(struct kvpool_request){.verb = KVPOOL_READ, .blocks = blocks},
                       NULL);
}

/* By ring where that can be: a step that is too large for the corner goes by message. */
static int call_step(struct kvpool *client, struct kvpool_request request,
                     struct kvpool_result *out_result)
{
    request.via_ring = !(client->options.flags & KVPOOL_NO_RINGS) && ring_can(client, &request);
    return kvpool_call(client, &request, out_result);
}

int kvpool_step(struct kvpool *client, const struct kvpool_row *rows, uint32_t num_rows,
                uint64_t *out_step)
{
    struct kvpool_request request = {.verb = KVPOOL_STEP, .rows = rows, .num_rows = num_rows};
    struct kvpool_result result;

    int status = call_step(client, request, &result);
    if (status == 0)
        *out_step = result.step;
    return status;
}

int kvpool_attend(struct kvpool *client, const struct kvpool_attend *attend)
{
    return call_step(client, (struct kvpool_request){.verb = KVPOOL_ATTEND, .attend = attend},
                     NULL);
}

int kvpool_end_step(struct kvpool *client, uint64_t step, bool abandon)
{
    struct kvpool_request request = {.verb = KVPOOL_END_STEP, .step = step, .abandon = abandon};
    return call_step(client, request, NULL);
}

int kvpool_cancel(struct kvpool *client, uint64_t ticket)
{
    return kvpool_call(client, &(struct kvpool_request){.verb = KVPOOL_CANCEL, .ticket = ticket},
                       NULL);
}

int kvpool_stats(struct kvpool *client, char *out_json, size_t max)
{
    struct kvpool_request request = {.verb = KVPOOL_STATS, .json = out_json, .json_max = max};
    return kvpool_call(client, &request, NULL);
}
