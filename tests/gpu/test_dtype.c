/* tests/gpu/test_dtype.c - formats: rounded to nearest even, the same bits on every version. */
#include "gpu/host/attend_kernel.h"
#include "gpu/host/cpu.h"
#include "gpu/host/dtype.h"
#include "tests/gpu/attend_case.h"

#include <math.h>
#include <string.h>

enum { NUM = 4096 };

/* Every f16 is among them, every tie between two of them, and random bits. */
static void draw(float *values, uint32_t turn)
{
    uint64_t state = turn;

    for (uint32_t i = 0; i < NUM; i++) {
        uint16_t half = (uint16_t)(turn * NUM / 2 + i / 2), next = (uint16_t)(half + 1);
        float value = dtypes[GPU_F16].load(&half, 0);
        if (turn >= 32)
            memcpy(&value, &(uint32_t){(uint32_t)random_next(&state)}, sizeof(value));
        else if (i % 2)
            value = (value + dtypes[GPU_F16].load(&next, 0)) / 2;
        values[i] = isnan(value) ? 0 : value;
    }
}

static void every_version_rounds_to_nearest_even(void **state)
{
    static float values[NUM];
    static char truth[NUM * 4], plain[NUM * 4], got[NUM * 4];
    const struct attend_version *version;

    (void)state;
    for (uint32_t turn = 0; turn < 96; turn++) {
        enum gpu_dtype type = turn % 2 ? GPU_BF16 : GPU_F16;
        draw(values, turn < 64 ? turn / 2 : turn);
        for (uint32_t i = 0; i < NUM; i++)
            element_set(truth, type, i, (double)values[i]);
        convert_plain(plain, type, values, GPU_F32, NUM);
        for (uint32_t i = 0; i < NUM; i++) /* where the nearest is infinite, the truth is another */
            if (isfinite(element_get(plain, type, i)))
                assert_memory_equal(plain + 2 * i, truth + 2 * i, 2);
        for (size_t v = 0; (version = cpu_version(v)); v++) {
            version->convert(got, type, values, GPU_F32, NUM);
            assert_memory_equal(got, plain, 2 * NUM);
        }
    }
}

static void every_version_reports_what_is_not_finite(void **state)
{
    const float bad[] = {NAN, INFINITY, -INFINITY, 65520, -1e30f};
    const struct attend_version *version;
    float values[64] = {0};
    char out[64 * 4];

    (void)state;
    for (size_t v = 0; (version = cpu_version(v)); v++)
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
            for (int to = 0; to < NUM_DTYPES; to++) {
                bool is_fine = i >= 3 && to != GPU_F16; /* only f16 ends so early */
                assert_true(version->convert(out, (enum gpu_dtype)to, values, GPU_F32, 64));
                values[5 + 13 * i] = bad[i];
                assert_int_equal(version->convert(out, (enum gpu_dtype)to, values, GPU_F32, 64),
                                 is_fine);
                values[5 + 13 * i] = 0;
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_version_rounds_to_nearest_even),
        cmocka_unit_test(every_version_reports_what_is_not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
