/* tests/proto/wire_rows.h - walks the caps of both directions; writes rows of proto/README.md. */
#pragma once

#include <stdio.h>

#include "proto/caps.h"
#include "proto/status.h"

/* Calls @visit once for each message that @rows reaches, itself included. */
static void for_each_message(const struct wire_cap_message *rows,
                             void (*visit)(const struct wire_cap_message *rows, void *state),
                             void *state)
{
    visit(rows, state);
    for (size_t i = 0; i < rows->num_caps; i++)
        if (rows->caps[i].of)
            for_each_message(rows->caps[i].of, visit, state);
}

static inline void status_row_print(char *out, size_t max, uint32_t status)
{
    const struct wire_status_row *row = wire_status_row(status);
    snprintf(out, max, "| %u | %s | %s | %s |\n", status, row->name, row->text,
             row->may_retry ? "yes" : "no");
}

/* Empty for a field without a cap. */
static inline void cap_row_print(char *out, size_t max, const struct wire_cap *cap,
                                 const ProtobufCFieldDescriptor *field)
{
    char count[32] = "", each[64] = "";

    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        snprintf(count, sizeof(count), "at most %u", cap->max_count);
    if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES)
        snprintf(each, sizeof(each), "%s%llu bytes", *count ? ", each " : "",
                 (unsigned long long)cap->max);
    else if (!cap->of && cap->max != WIRE_ANY)
        snprintf(each, sizeof(each), "%llu", (unsigned long long)cap->max);
    out[0] = '\0';
    if (*count || *each)
        snprintf(out, max, "| `%s` | %s%s%s |\n", cap->field, count, each,
                 cap->unit == 2    ? ", a multiple of 2"
                 : cap->unit == 4  ? ", a multiple of 4"
                 : cap->unit == 16 ? " or 0"
                                   : "");
}
