/* proto/ring.c - is what lies in staging within its bounds? */
#include "proto/ring.h"

#include <math.h>
#include <string.h>

#include "proto/caps.h"
#include "proto/status.h"

static int malformed(const char *what, const char **out_what)
{
    *out_what = what;
    return STATUS_MALFORMED;
}

bool ring_span_fits(uint64_t offset, uint64_t num_bytes, uint64_t data_bytes)
{
    return offset <= data_bytes && num_bytes <= data_bytes - offset;
}

void ring_header_init(struct staging_header *header, uint64_t data_bytes)
{
    memset(header, 0, sizeof(*header));
    header->magic = RING_MAGIC;
    header->version = RING_VERSION;
    header->submissions_offset = RING_SUBMISSIONS_OFFSET;
    header->completions_offset = RING_COMPLETIONS_OFFSET;
    header->data_offset = RING_DATA_OFFSET;
    header->data_bytes = data_bytes;
}

int ring_header_check(const struct staging_header *header, uint64_t staging_bytes)
{
    if (staging_bytes < RING_HEADER_BYTES || header->magic != RING_MAGIC)
        return STATUS_MALFORMED;
    if (header->version != RING_VERSION)
        return STATUS_UNSUPPORTED;

    uint64_t submissions = RING_ENTRIES * sizeof(struct ring_submission);
    uint64_t completions = RING_ENTRIES * sizeof(struct ring_completion);
    if (header->submissions_offset < RING_HEADER_BYTES || header->submissions_offset % 64 ||
        header->completions_offset % 64 || header->data_offset % 64 ||
        !ring_span_fits(header->submissions_offset, submissions, header->completions_offset) ||
        !ring_span_fits(header->completions_offset, completions, header->data_offset) ||
        !ring_span_fits(header->data_offset, header->data_bytes, staging_bytes))
        return STATUS_MALFORMED;
    return 0;
}

/* The flags that a verb may have; a verb without a row is unknown. */
/* clang-format off */
static const struct {
    bool is_known;
    uint32_t flags;
} verb_rows[] = {
    [RING_STEP]     = {true, 0},
    [RING_ATTEND]   = {true, RING_WANT_LSE | RING_HAS_SINKS},
    [RING_END_STEP] = {true, RING_ABANDON},
    [RING_PUBLISH]  = {true, 0},
    [RING_TRUNCATE] = {true, 0},
    [RING_RELEASE]  = {true, 0},
    [RING_FORK]     = {true, 0},
};
/* clang-format on */

int ring_submission_check(const struct ring_submission *submission, uint64_t data_bytes,
                          const char **out_what)
{
    const struct ring_submission *s = submission;

    if (s->verb >= sizeof(verb_rows) / sizeof(verb_rows[0]) || !verb_rows[s->verb].is_known) {
        *out_what = "submission: a verb of a newer version";
        return STATUS_UNSUPPORTED;
    }
    if (s->flags & ~verb_rows[s->verb].flags)
        return malformed("submission: flags", out_what);
    if (s->verb == RING_STEP) {
        if (s->value > WIRE_MAX_ROWS)
            return malformed("submission: too many rows", out_what);
        if (s->rows_offset % 8 ||
            !ring_span_fits(s->rows_offset, s->value * sizeof(struct ring_row), data_bytes))
            return malformed("submission: rows_offset", out_what);
    }
    if (s->verb == RING_ATTEND) {
        if (s->layer >= WIRE_MAX_LAYERS)
            return malformed("submission: layer", out_what);
        if (!isfinite(s->scale) || !isfinite(s->soft_cap))
            return malformed("submission: scale or soft_cap", out_what);
    }
    return 0;
}

int ring_row_check(const struct ring_row *row, uint64_t data_bytes, const char **out_what)
{
    if (row->num_tokens > WIRE_MAX_TOKENS)
        return malformed("row: num_tokens", out_what);
    if (row->tokens_offset % 4 ||
        !ring_span_fits(row->tokens_offset, (uint64_t)row->num_tokens * 4, data_bytes))
        return malformed("row: tokens_offset", out_what);
    return 0;
}

int ring_attend_check(const struct ring_submission *submission,
                      const struct ring_attend_bytes *bytes, uint64_t data_bytes,
                      const char **out_what)
{
    const struct ring_submission *s = submission;
    const struct {
        const char *what;
        uint64_t offset, num_bytes;
        bool is_used;
    } spans[] = {
        {"attend: q_offset", s->q_offset, bytes->q, true},
        {"attend: k_offset", s->k_offset, bytes->k, true},
        {"attend: v_offset", s->v_offset, bytes->v, true},
        {"attend: out_offset", s->out_offset, bytes->out, true},
        {"attend: lse_offset", s->lse_offset, bytes->lse, s->flags & RING_WANT_LSE},
        {"attend: sinks_offset", s->sinks_offset, bytes->sinks, s->flags & RING_HAS_SINKS},
    };

    /* 4 bytes hold an element of any type. */
    for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++)
        if (spans[i].is_used && (spans[i].offset % 4 ||
                                 !ring_span_fits(spans[i].offset, spans[i].num_bytes, data_bytes)))
            return malformed(spans[i].what, out_what);
    return 0;
}
