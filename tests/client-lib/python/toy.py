"""A model whose q, k and v follow from the tokens up to a position: equal prefixes, equal values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

QUERY, KEY, VALUE = 1, 2, 3
_MASK = (1 << 64) - 1


def _mix(x: int) -> int:  # splitmix64
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _MASK
    return x ^ x >> 31


def _mix_all(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def tensor(
    tokens: Sequence[int], first: int, layer: int, what: int, heads: int, dim: int
) -> NDArray[np.float32]:
    """[position from first on][head][dim]: queries in [-4, 4), keys and values in [-1, 1)."""
    prefix, prefixes = 1, []
    for token in tokens:
        prefix = _mix(prefix ^ _mix(token))
        prefixes.append(prefix)
    seeds = np.array(prefixes[first:], np.uint64)[:, None]
    index = np.arange(heads * dim, dtype=np.uint64)[None, :]
    bits = _mix_all(seeds ^ _mix_all(index + np.uint64(layer << 40 | what << 32)))
    signed = (bits >> np.uint64(32)).astype(np.uint32).view(np.int32).astype(np.float32)
    values = signed * np.float32(2**-29 if what == QUERY else 2**-31)
    return values.reshape(len(seeds), heads, dim)
