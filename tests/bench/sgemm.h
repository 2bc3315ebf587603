/* tests/bench/sgemm.h - OpenBLAS where it is there: what a matrix product can reach here. */
#pragma once

#include <stdbool.h>

bool sgemm_is_there(void);
void sgemm_use_threads(int num);

/* c[m][n] = a[m][k] b[k][n], or b[n][k] if @is_b_transposed. */
void sgemm_run(int m, int n, int k, const float *a, const float *b, bool is_b_transposed, float *c);
