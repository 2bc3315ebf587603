/* tests/gpu/test_block_copy.c - every copy that this CPU can run does what the reference does. */
#include "gpu/host/block_copy.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 200000, EDGE = 128, AREA = MAX_BYTES + 2 * EDGE };

static const size_t sizes[] = {0,     1,     63,    64,         100,        4096,
                               32767, 32768, 32769, 32768 + 64, 65536 + 96, MAX_BYTES};

struct areas {
    unsigned char *from, *to, *expected;
};

static int setup(void **state)
{
    struct areas *areas = calloc(1, sizeof(*areas));
    unsigned char **all[] = {&areas->from, &areas->to, &areas->expected};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        *all[i] = aligned_alloc(64, AREA / 64 * 64 + 64);
    for (size_t i = 0; i < AREA; i++)
        areas->from[i] = (unsigned char)(i * 131 + (i >> 8));
    *state = areas;
    return 0;
}

static int teardown(void **state)
{
    struct areas *areas = *state;

    free(areas->from);
    free(areas->to);
    free(areas->expected);
    free(areas);
    return 0;
}

/* Both run on memory of the same content, edges too: a byte too many shows. */
static void compare(struct areas *areas, const struct block_copier *copier, size_t to_offset,
                    size_t from_offset, size_t bytes)
{
    memset(areas->to, 0xee, AREA);
    memset(areas->expected, 0xee, AREA);
    copier->copy(areas->to + to_offset, areas->from + from_offset, bytes);
    block_copier_plain.copy(areas->expected + to_offset, areas->from + from_offset, bytes);
    assert_memory_equal(areas->to, areas->expected, AREA);

    copier->zero(areas->to + to_offset, bytes);
    block_copier_plain.zero(areas->expected + to_offset, bytes);
    assert_memory_equal(areas->to, areas->expected, AREA);
}

static void every_copier_equals_the_reference(void **state)
{
    static const size_t offsets[] = {0, 1, 32, 64};

    for (const struct block_copier *const *copier = block_copiers(); *copier; copier++) {
        print_message("%s\n", (*copier)->name);
        for (size_t s = 0; s < ARRAY_SIZE(sizes); s++)
            for (size_t to = 0; to < ARRAY_SIZE(offsets); to++)
                for (size_t from = 0; from < ARRAY_SIZE(offsets); from++)
                    compare(*state, *copier, offsets[to], offsets[from], sizes[s]);
    }
}

static void the_last_copier_is_the_reference(void **state)
{
    const struct block_copier *const *copier = block_copiers();
    (void)state;

    while (copier[1])
        copier++;
    assert_ptr_equal(*copier, &block_copier_plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_copier_equals_the_reference, setup, teardown),
        cmocka_unit_test(the_last_copier_is_the_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
