/* tests/daemon/test_extras.c - what daemon/extras.h promises. */
#include "daemon/extras.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 16, PAYLOAD = EXTRAS_CHUNK - 16, RECORD = 8 };

struct fixture {
    struct share share;
    struct extras extras;
    struct key_extra out[64];
    uint8_t out_bytes[CHUNKS * EXTRAS_CHUNK];
};

static uint8_t bytes[2 * PAYLOAD * CHUNKS];

static int setup(void **state)
{
    static const bool members[] = {true, true};
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 131 >> 3);
    assert_int_equal(share_init(&fixture->share, CHUNKS, 2), 0);
    share_divide(&fixture->share, members, 2); /* 4 chunks each, 8 are anybody's */
    assert_int_equal(extras_init(&fixture->extras, CHUNKS * EXTRAS_CHUNK, &fixture->share), 0);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    share_check(&fixture->share);
    extras_finish(&fixture->extras);
    share_finish(&fixture->share);
    free(fixture);
    return 0;
}

static uint32_t keep(struct fixture *fixture, pool_payer tenant, const struct key_extra *list,
                     uint32_t num)
{
    assert_true(extras_have_room(&fixture->extras, tenant, list, num));
    return extras_keep(&fixture->extras, tenant, list, num);
}

static void expect(struct fixture *fixture, uint32_t set, uint64_t first, uint64_t end,
                   const struct key_extra *list, uint32_t num)
{
    memset(fixture->out_bytes, 0, sizeof(fixture->out_bytes));
    assert_int_equal(
        extras_copy(&fixture->extras, set, first, end, fixture->out, fixture->out_bytes), num);
    for (uint32_t i = 0; i < num; i++) {
        assert_int_equal(fixture->out[i].block, list[i].block);
        assert_int_equal(fixture->out[i].num_bytes, list[i].num_bytes);
        assert_ptr_not_equal(fixture->out[i].bytes, list[i].bytes);
        if (list[i].num_bytes > 0)
            assert_memory_equal(fixture->out[i].bytes, list[i].bytes, list[i].num_bytes);
    }
}

/* Empty ones, and such as end before, at and behind the end of a chunk. */
static void what_is_kept_is_copied_by_blocks(void **state)
{
    const struct key_extra list[] = {{0, bytes, 1},        {1, NULL, 0},
                                     {7, bytes + 3, 1024}, {8, bytes + 9, PAYLOAD - RECORD},
                                     {100, bytes, 32},     {1048575, bytes + 500, 3 * PAYLOAD}};
    uint32_t set = keep(*state, 0, list, ARRAY_SIZE(list));

    expect(*state, set, 0, UINT64_MAX, list, 6);
    expect(*state, set, 0, 8, list, 3);
    expect(*state, set, 1, 8, list + 1, 2);
    expect(*state, set, 7, 9, list + 2, 2);
    expect(*state, set, 9, 100, NULL, 0);
    expect(*state, set, 101, UINT64_MAX, list + 5, 1);
    expect(*state, set, 8, 8, NULL, 0);
    expect(*state, set, 9, 3, NULL, 0);
    extras_give(&((struct fixture *)*state)->extras, set);
}

static void no_extras_cost_nothing(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(keep(fixture, 0, NULL, 0), EXTRAS_NONE);
    extras_share(&fixture->extras, EXTRAS_NONE);
    extras_give(&fixture->extras, EXTRAS_NONE);
    expect(fixture, EXTRAS_NONE, 0, UINT64_MAX, NULL, 0);
    assert_int_equal(fixture->share.num_taken, 0);
}

/* A chunk has room for one extra of PAYLOAD - RECORD bytes, and no byte more. */
static void a_set_is_charged_to_its_tenant_until_its_last_user_gives_it_back(void **state)
{
    struct fixture *fixture = *state;
    const struct key_extra one = {0, bytes, PAYLOAD - RECORD}, two = {0, bytes, PAYLOAD - 7};
    uint32_t small = keep(fixture, 0, &one, 1), large = keep(fixture, 1, &two, 1);

    assert_int_equal(fixture->share.taken[0], 1);
    assert_int_equal(fixture->share.taken[1], 2);
    extras_share(&fixture->extras, large);
    extras_share(&fixture->extras, large);
    extras_give(&fixture->extras, large);
    extras_give(&fixture->extras, large);
    assert_int_equal(fixture->share.taken[1], 2);
    expect(fixture, large, 0, 1, &two, 1);
    extras_give(&fixture->extras, large);
    extras_give(&fixture->extras, small);
    assert_int_equal(fixture->share.num_taken, 0);
}

static void a_tenant_leaves_room_for_the_others(void **state)
{
    struct fixture *fixture = *state;
    const struct key_extra part = {0, bytes, 4 * PAYLOAD - RECORD};
    uint32_t sets[4];

    for (uint32_t i = 0; i < 3; i++)
        sets[i] = keep(fixture, 0, &part, 1);
    assert_false(extras_have_room(&fixture->extras, 0, &part, 1));
    sets[3] = keep(fixture, 1, &part, 1);
    assert_int_equal(fixture->share.num_taken, CHUNKS);
    for (uint32_t i = 0; i < 4; i++)
        expect(fixture, sets[i], 0, 1, &part, 1);
    for (uint32_t i = 0; i < 4; i++)
        extras_give(&fixture->extras, sets[i]);
}

/* Chunks come back in any order, and sets of other sizes are made of them. */
static void chunks_are_used_again(void **state)
{
    struct fixture *fixture = *state;
    struct key_extra lists[8];
    uint32_t sets[8], sizes[8] = {0}, seed = 1;

    for (uint32_t round = 0; round < 2000; round++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t at = seed >> 29, size = 1 + (seed >> 8) % (3 * PAYLOAD);
        if (sizes[at] > 0) {
            expect(fixture, sets[at], 0, UINT64_MAX, &lists[at], 1);
            extras_give(&fixture->extras, sets[at]);
            sizes[at] = 0;
            continue;
        }
        lists[at] = (struct key_extra){at, bytes + round % 97, size};
        if (!extras_have_room(&fixture->extras, at % 2, &lists[at], 1))
            continue;
        sets[at] = extras_keep(&fixture->extras, at % 2, &lists[at], 1);
        sizes[at] = size;
        share_check(&fixture->share);
    }
    for (uint32_t at = 0; at < 8; at++) {
        if (sizes[at] > 0)
            extras_give(&fixture->extras, sets[at]);
    }
    assert_int_equal(fixture->share.num_taken, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_kept_is_copied_by_blocks),
        TEST(no_extras_cost_nothing),
        TEST(a_set_is_charged_to_its_tenant_until_its_last_user_gives_it_back),
        TEST(a_tenant_leaves_room_for_the_others),
        TEST(chunks_are_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
