"""The dense cache: its attention against the formula, its rounding by hand."""

import numpy as np
import pytest

from engine.dense import attend_dense, round_to


def formula(q, k, v, window):
    """Attention as it is written, one row and one head at a time, in double precision."""
    rows, heads, dim = q.shape
    length, group = k.shape[1], heads // k.shape[0]
    out = np.empty_like(q)
    for row in range(rows):
        last = length - rows + row
        first = max(0, last - window + 1) if window else 0
        for head in range(heads):
            keys, values = k[head // group, first:last + 1], v[head // group, first:last + 1]
            weights = np.exp(keys @ q[row, head] / np.sqrt(dim))
            out[row, head] = weights @ values / weights.sum()
    return out


@pytest.mark.parametrize("rows, length, window", [
    (1, 1, 0), (1, 9, 0), (5, 5, 0), (4, 20, 0), (1, 9, 3), (5, 5, 2), (7, 30, 8), (30, 30, 8),
    (1, 9, 9), (1, 9, 1), (3, 9, 100)])
def test_dense_attention(rows, length, window):
    rng = np.random.default_rng(rows * length + window)
    q = rng.standard_normal((rows, 6, 8))
    k, v = rng.standard_normal((2, 3, length, 8))
    assert np.allclose(attend_dense(q, k, v, window), formula(q, k, v, window), atol=1e-12)


def test_bf16_rounds_to_even():
    # 1 + 2**-8 lies between 1 and 1 + 2**-7; 1 + 3 * 2**-8 between 1 + 2**-7 and 1 + 2**-6.
    values = np.array([1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -8 + 2 ** -20, -3], np.float32)
    assert round_to(values, "bf16").tolist() == [1, 1 + 2 ** -6, 1 + 2 ** -7, -3]


def test_f16_rounds():
    values = np.array([1 + 2 ** -11, 1 + 3 * 2 ** -11], np.float32)
    assert round_to(values, "f16").tolist() == [1, 1 + 2 ** -9]
    assert round_to(values, "f32") is values
