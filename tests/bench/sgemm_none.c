/* tests/bench/sgemm_none.c - where OpenBLAS is not installed. */
#include "tests/bench/sgemm.h"

bool sgemm_is_there(void)
{
    return false;
}

void sgemm_use_threads(int num)
{
    (void)num;
}

void sgemm_run(int m, int n, int k, const float *a, const float *b, bool is_b_transposed, float *c)
{
    (void)m, (void)n, (void)k, (void)a, (void)b, (void)is_b_transposed, (void)c;
}
