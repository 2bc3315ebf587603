"""Attention as the textbook has it, in float64: what every answer of the daemon is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def attention(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    first: int,
    *,
    window: int = 0,
    scale: float = 0.0,
    soft_cap: float = 0.0,
    sinks: NDArray[Any] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """q [row][q_head][dim] of positions first, first + 1, ...; k, v [position][kv_head][dim] of all.

    Returns out [row][q_head][v dim] and lse [row][q_head].
    """
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    share = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, share, axis=1), np.repeat(v, share, axis=1)
    scores = np.einsum("rhd,phd->rhp", q, k) * (scale or 1 / np.sqrt(q.shape[2]))
    if soft_cap:
        scores = soft_cap * np.tanh(scores / soft_cap)
    row = first + np.arange(len(q))[:, None]
    position = np.arange(len(k))[None, :]
    seen = position <= row
    if window:
        seen &= position > row - window
    scores = np.where(seen[:, None, :], scores, -np.inf)
    if sinks is not None:
        column = np.broadcast_to(sinks[None, :, None], (*scores.shape[:2], 1))
        scores = np.concatenate([scores, column], axis=2)
        v = np.concatenate([v, np.zeros((1, *v.shape[1:]))])
    top = scores.max(axis=2, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=2, keepdims=True)
    return np.einsum("rhp,phd->rhd", weights / total, v), (top + np.log(total))[:, :, 0]
