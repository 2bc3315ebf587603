/* tests/bench/sgemm_openblas.c - the matrix product of OpenBLAS. */
#include "tests/bench/sgemm.h"

#include <cblas.h>

bool sgemm_is_there(void)
{
    return true;
}

void sgemm_use_threads(int num)
{
    openblas_set_num_threads(num);
}

void sgemm_run(int m, int n, int k, const float *a, const float *b, bool is_b_transposed, float *c)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, is_b_transposed ? CblasTrans : CblasNoTrans, m, n, k,
                1, a, k, b, is_b_transposed ? k : n, 0, c, n);
}
