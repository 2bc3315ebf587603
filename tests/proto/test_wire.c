/* tests/proto/test_wire.c - what proto/caps.c, codec.c and status.c promise, and README.md says. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/caps.h"
#include "proto/codec.h"
#include "proto/status.h"
#include "tests/proto/wire_rows.h"
#include "tests/support/test.h"

static const char *readme_path;
static _Alignas(16) unsigned char memory[1 << 20];
static struct wire_arena arena;
static unsigned char frame[1 << 16];

static const unsigned char example[] = {
    0x08, 0x01, 0x19, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 0x22, 0x10, 0x00, 0x01,
    0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x2a,
    0x1d, 0x09, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0xe8, 0x07, 0xca, 0x01,
    0x0e, 0x0a, 0x0c, 0x08, 0x01, 0x12, 0x08, 0x05, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00};

static const unsigned char example_reply[] = {0x0a, 0x10, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
                                              0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
                                              0x10, 0x01, 0x22, 0x0d, 0x09, 0x01, 0x00, 0x00, 0x00,
                                              0x00, 0x00, 0x00, 0x00, 0x72, 0x02, 0x08, 0x01};

/* One request with one verb, ready to be spoilt. */
struct parts {
    Kvpool__Wire__Batch batch;
    Kvpool__Wire__Request request, *requests[1];
    Kvpool__Wire__Allocate allocate;
    Kvpool__Wire__Prompt prompt;
    Kvpool__Wire__CreateDomain domain;
};

static void parts_init(struct parts *parts)
{
    kvpool__wire__batch__init(&parts->batch);
    kvpool__wire__request__init(&parts->request);
    kvpool__wire__allocate__init(&parts->allocate);
    kvpool__wire__prompt__init(&parts->prompt);
    kvpool__wire__create_domain__init(&parts->domain);
    parts->batch.major = WIRE_MAJOR;
    parts->requests[0] = &parts->request;
    parts->batch.requests = parts->requests;
    parts->batch.n_requests = 1;
    parts->request.id = 1;
    parts->request.verb_case = KVPOOL__WIRE__REQUEST__VERB_ALLOCATE;
    parts->request.allocate = &parts->allocate;
    parts->allocate.prompt = &parts->prompt;
}

static void assert_malformed(const struct parts *parts, const char *field)
{
    const char *what = NULL;
    assert_int_equal(wire_batch_check(&parts->batch, &what), STATUS_MALFORMED);
    assert_string_equal(what, field);
}

static void the_example_of_the_readme_decodes(void **state)
{
    (void)state;
    Kvpool__Wire__Batch *batch;
    const char *what;
    assert_int_equal(wire_batch_decode(&arena, example, sizeof(example), &batch, &what), 0);
    assert_int_equal(wire_batch_check(batch, &what), 0);
    assert_int_equal(batch->session, 0x0123456789abcdef);
    assert_int_equal(batch->requests[0]->verb_case, KVPOOL__WIRE__REQUEST__VERB_MATCH);
    assert_int_equal(batch->requests[0]->match->prompt->tokens.len, 8);
    assert_int_equal(kvpool__wire__batch__pack(batch, frame), sizeof(example));
    assert_memory_equal(frame, example, sizeof(example));

    Kvpool__Wire__ReplyBatch *reply;
    assert_int_equal(wire_reply_decode(&arena, example_reply, sizeof(example_reply), &reply, &what),
                     0);
    assert_int_equal(wire_reply_check(reply, &what), 0);
    assert_int_equal(reply->replies[0]->match->matched, 1);
}

static void every_byte_that_is_missing_is_noticed(void **state)
{
    (void)state;
    Kvpool__Wire__Batch *batch;
    const char *what;
    for (size_t n = 0; n < sizeof(example); n++) {
        int status = wire_batch_decode(&arena, example, n, &batch, &what);
        if (status == 0) /* cut between two fields: then the request is missing */
            assert_int_equal(batch->n_requests, 0);
        else
            assert_int_equal(status, STATUS_MALFORMED);
    }
}

static void another_major_is_unsupported_whatever_follows(void **state)
{
    (void)state;
    Kvpool__Wire__Batch *batch;
    const char *what;
    const unsigned char next[] = {0x08, 0x02, 0xff, 0xff, 0xff};
    assert_int_equal(wire_batch_decode(&arena, next, 2, &batch, &what), STATUS_UNSUPPORTED);
    assert_int_equal(wire_batch_decode(&arena, next, sizeof(next), &batch, &what),
                     STATUS_UNSUPPORTED);
    const unsigned char none[] = {0x10, 0x01};
    assert_int_equal(wire_batch_decode(&arena, none, sizeof(none), &batch, &what),
                     STATUS_MALFORMED);
    Kvpool__Wire__ReplyBatch *reply;
    const unsigned char newer[] = {0x10, 0x02};
    assert_int_equal(wire_reply_decode(&arena, newer, sizeof(newer), &reply, &what),
                     STATUS_UNSUPPORTED);
}

static void unknown_fields_and_verbs_are_tolerated(void **state)
{
    (void)state;
    Kvpool__Wire__Batch *batch;
    const char *what;
    /* minor 9; an unknown field 200 of the batch; a request with an unknown verb, field 99 */
    const unsigned char newer[] = {0x08, 0x01, 0x10, 0x09, 0xc0, 0x0c, 0x05, 0x2a,
                                   0x0e, 0x09, 1,    0,    0,    0,    0,    0,
                                   0,    0,    0x9a, 0x06, 0x02, 0x08, 0x01};
    unsigned char whole[sizeof(newer)];
    memcpy(whole, newer, sizeof(newer));
    whole[8] = sizeof(newer) - 9;
    assert_int_equal(wire_batch_decode(&arena, whole, sizeof(whole), &batch, &what), 0);
    assert_int_equal(wire_batch_check(batch, &what), 0);
    assert_int_equal(batch->minor, 9);
    assert_int_equal(batch->requests[0]->verb_case, KVPOOL__WIRE__REQUEST__VERB__NOT_SET);
}

static void a_decode_stays_in_its_arena(void **state)
{
    (void)state;
    struct parts parts;
    parts_init(&parts);
    uint8_t tokens[4096] = {0};
    parts.prompt.tokens = (ProtobufCBinaryData){sizeof(tokens), tokens};
    size_t num_bytes = kvpool__wire__batch__pack(&parts.batch, frame);

    Kvpool__Wire__Batch *batch;
    const char *what;
    int status = STATUS_MALFORMED;
    for (size_t size = 0; status && size <= sizeof(memory); size += 8) {
        struct wire_arena small;
        memset(memory + size, 0xa5, 64);
        wire_arena_init(&small, memory, size);
        status = wire_batch_decode(&small, frame, num_bytes, &batch, &what);
        assert_true(small.used <= size);
        for (size_t i = 0; i < 64; i++)
            assert_int_equal(memory[size + i], 0xa5);
        if (status)
            assert_int_equal(status, STATUS_MALFORMED);
    }
    assert_int_equal(status, 0);
}

static void a_frame_over_its_cap_is_not_read(void **state)
{
    (void)state;
    Kvpool__Wire__Batch *batch;
    Kvpool__Wire__ReplyBatch *reply;
    const char *what;
    unsigned char *big = calloc(1, WIRE_MAX_REPLY_BYTES + 1);
    assert_non_null(big);
    assert_int_equal(wire_batch_decode(&arena, big, WIRE_MAX_BATCH_BYTES + 1, &batch, &what),
                     STATUS_MALFORMED);
    assert_int_equal(wire_reply_decode(&arena, big, WIRE_MAX_REPLY_BYTES + 1, &reply, &what),
                     STATUS_MALFORMED);
    free(big);
}

static void each_kind_of_field_has_its_cap(void **state)
{
    (void)state;
    const char *what;
    struct parts parts;
    parts_init(&parts);
    assert_int_equal(wire_batch_check(&parts.batch, &what), 0);

    uint8_t *tokens = calloc(WIRE_MAX_TOKENS + 1, 4);
    assert_non_null(tokens);
    parts.prompt.tokens = (ProtobufCBinaryData){(size_t)4 * WIRE_MAX_TOKENS, tokens};
    assert_int_equal(wire_batch_check(&parts.batch, &what), 0);
    parts.prompt.tokens.len += 4;
    assert_malformed(&parts, "Prompt.tokens");
    parts.prompt.tokens.len = 5;
    assert_malformed(&parts, "Prompt.tokens");
    free(tokens);

    parts_init(&parts);
    parts.request.deadline_ms = WIRE_MAX_DEADLINE_MS + 1;
    assert_malformed(&parts, "Request.deadline_ms");
    parts_init(&parts);
    parts.request.id = 0;
    assert_malformed(&parts, "Request.id");
    parts_init(&parts);
    parts.batch.token = (ProtobufCBinaryData){15, frame};
    assert_malformed(&parts, "Batch.token");
    parts_init(&parts);
    parts.batch.n_requests = WIRE_MAX_REQUESTS + 1; /* refused before one of them is looked at */
    assert_malformed(&parts, "Batch.requests");

    parts_init(&parts);
    char name[WIRE_MAX_PAYER_BYTES + 2];
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    char *names[] = {name};
    parts.request.verb_case = KVPOOL__WIRE__REQUEST__VERB_CREATE_DOMAIN;
    parts.request.create_domain = &parts.domain;
    parts.domain.readers = names;
    parts.domain.n_readers = 1;
    assert_malformed(&parts, "CreateDomain.readers");
    name[WIRE_MAX_PAYER_BYTES] = '\0';
    assert_int_equal(wire_batch_check(&parts.batch, &what), 0);
    parts.domain.n_readers = WIRE_MAX_MEMBERS + 1;
    char *many[WIRE_MAX_MEMBERS + 1];
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = name;
    parts.domain.readers = many;
    assert_malformed(&parts, "CreateDomain.readers");
}

static void numbers_are_finite(void **state)
{
    (void)state;
    struct parts parts;
    parts_init(&parts);
    Kvpool__Wire__Attend attend = KVPOOL__WIRE__ATTEND__INIT;
    parts.request.verb_case = KVPOOL__WIRE__REQUEST__VERB_ATTEND;
    parts.request.attend = &attend;
    attend.scale = NAN;
    assert_malformed(&parts, "Attend.scale");
    attend.scale = 0;
    attend.soft_cap = INFINITY;
    assert_malformed(&parts, "Attend.soft_cap");
}

static void text_is_utf8_without_control_characters(void **state)
{
    (void)state;
    /* clang-format off */
    static const struct { const char *text; bool fits; } texts[] = {
        {"", true}, {"llama", true}, {"\xc3\xa9", true}, {"\xe2\x82\xac", true},
        {"\xf0\x9f\x98\x80", true}, {"\xf4\x8f\xbf\xbf", true}, {"a\nb", true},
        {"\x01", false}, {"\x1b[2J", false}, {"\x7f", false}, {"\x80", false}, {"\xc3", false},
        {"\xc0\x80", false}, {"\xe0\x80\x80", false}, {"\xed\xa0\x80", false},
        {"\xf4\x90\x80\x80", false}, {"\xf5\x80\x80\x80", false}, {"\xe2\x82", false},
        {"\xff", false},
    };
    /* clang-format on */
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        const char *what;
        struct parts parts;
        parts_init(&parts);
        parts.prompt.adapter = (char *)texts[i].text;
        assert_int_equal(wire_batch_check(&parts.batch, &what),
                         texts[i].fits ? 0 : STATUS_MALFORMED);
    }
}

/* ---- the tables are whole, and the README has them ---- */

struct seen {
    char *readme;
    size_t num_messages;
};

static void message_visit(const struct wire_cap_message *rows, void *state)
{
    struct seen *seen = state;
    const ProtobufCMessageDescriptor *descriptor = rows->descriptor;
    const char *slash = strrchr(descriptor->name, '.');
    const char *name = slash ? slash + 1 : descriptor->name;

    assert_int_equal(rows->num_caps, descriptor->n_fields);
    for (size_t i = 0; i < rows->num_caps; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        const struct wire_cap *cap = &rows->caps[i];
        char expected[128], row[256];
        snprintf(expected, sizeof(expected), "%s.%s", name, field->name);
        assert_string_equal(cap->field, expected);
        assert_true((field->type == PROTOBUF_C_TYPE_MESSAGE) == (cap->of != NULL));
        if (cap->of)
            assert_ptr_equal(cap->of->descriptor, field->descriptor);
        if (field->type == PROTOBUF_C_TYPE_BYTES)
            assert_true(cap->unit > 0);
        if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES)
            assert_true(cap->max > 0 && cap->max != WIRE_ANY);
        assert_true((field->label == PROTOBUF_C_LABEL_REPEATED) == (cap->max_count > 0));
        cap_row_print(row, sizeof(row), cap, field);
        if (!strstr(seen->readme, row))
            fail_msg("proto/README.md lacks: %s", row);
    }
    seen->num_messages++;
}

static void the_readme_has_every_cap_and_status(void **state)
{
    (void)state;
    FILE *file = fopen(readme_path, "r");
    assert_non_null(file);
    static char text[1 << 17];
    size_t num_bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[num_bytes] = '\0';

    struct seen seen = {.readme = text};
    for_each_message(&wire_batch_caps, message_visit, &seen);
    for_each_message(&wire_reply_batch_caps, message_visit, &seen);
    assert_true(seen.num_messages > 35);
    for (uint32_t status = 0; status < NUM_STATUSES; status++) {
        char row[512];
        assert_non_null(wire_status_row(status)->name);
        status_row_print(row, sizeof(row), status);
        if (!strstr(text, row))
            fail_msg("proto/README.md lacks: %s", row);
    }
    assert_string_equal(wire_status_row(NUM_STATUSES)->name, "UNKNOWN");
    assert_string_equal(wire_status_row(UINT32_MAX)->name, "UNKNOWN");
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    readme_path = argv[1];
    wire_arena_init(&arena, memory, sizeof(memory));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_readme_decodes),
        cmocka_unit_test(every_byte_that_is_missing_is_noticed),
        cmocka_unit_test(another_major_is_unsupported_whatever_follows),
        cmocka_unit_test(unknown_fields_and_verbs_are_tolerated),
        cmocka_unit_test(a_decode_stays_in_its_arena),
        cmocka_unit_test(a_frame_over_its_cap_is_not_read),
        cmocka_unit_test(each_kind_of_field_has_its_cap),
        cmocka_unit_test(numbers_are_finite),
        cmocka_unit_test(text_is_utf8_without_control_characters),
        cmocka_unit_test(the_readme_has_every_cap_and_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
