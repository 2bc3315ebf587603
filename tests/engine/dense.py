"""The reference: a dense cache in this process, told the same as the daemon's (cache.py)."""

import contextlib

import numpy as np


def round_to(x, dtype):
    """What is left of @x in a cache of @dtype, as f32: rounded to nearest, ties to even."""
    if dtype == "f16":
        return x.astype(np.float16).astype(x.dtype)
    if dtype == "bf16":
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return bits.view(np.float32).astype(x.dtype)
    return x


def attend_dense(q, k, v, window):
    """Causal attention of the last positions: q [row][head][dim], k and v [head][position][dim]."""
    rows, q_heads, dim = q.shape
    kv_heads, length, _ = k.shape
    group = q_heads // kv_heads
    first = max(length - rows - window + 1, 0) if window else 0  # of all that any row sees
    k, v = k[:, first:], v[:, first:]
    key = np.arange(first, length)
    query = np.arange(length - rows, length)[:, None]
    hidden = key > query
    if window:
        hidden |= query - key >= window
    out = np.empty_like(q)
    for head in range(kv_heads):
        mine = slice(head * group, (head + 1) * group)
        flat = q[:, mine].reshape(rows * group, dim) * q.dtype.type(dim ** -0.5)
        # For few rows numpy is twice as fast this way round.
        scores = (k[head] @ flat.T).T if rows == 1 else flat @ k[head].T
        scores = scores.reshape(rows, group, -1)
        if rows > 1:
            np.putmask(scores, np.broadcast_to(hidden[:, None], scores.shape), -1e30)
        elif hidden.any():
            scores[:, :, hidden[0]] = -1e30
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        out[:, mine] = (scores.reshape(rows * group, -1) @ v[head]).reshape(rows, group, dim)
    return out


class LocalCache:
    """Dense K and V of every sequence and layer, in arrays that double when they are full."""

    def __init__(self, model, dtype="f32"):
        self.model, self.dtype = model, dtype
        self.windows = {layer: window for window, layers in model.groups() for layer in layers}
        self.arrays, self.lengths = {}, {}

    def bytes_per_token(self):
        size = 4 if self.dtype == "f32" else 2
        return 2 * size * self.model.num_layers * self.model.num_kv_heads * self.model.head_dim

    def is_arriving(self, tokens, is_patient):
        return False

    def match(self, tokens):
        return 0  # nothing is shared

    def open(self, sequence, tokens):
        self.arrays[sequence], self.lengths[sequence] = {}, 0
        return 0

    @contextlib.contextmanager
    def stepping(self, rows):
        rows = [(sequence, len(tokens)) for sequence, tokens in rows]
        yield lambda layer, q, k, v: self._attend(rows, layer, q, k, v)
        for sequence, count in rows:
            self.lengths[sequence] += count

    def _attend(self, rows, layer, q, k, v):
        out, at = np.empty_like(q), 0
        for sequence, count in rows:
            mine, at = slice(at, at + count), at + count
            length = self.lengths[sequence] + count
            kv = self._room(sequence, layer, length, k.dtype)
            kv[0, :, length - count:length] = round_to(k[mine], self.dtype).swapaxes(0, 1)
            kv[1, :, length - count:length] = round_to(v[mine], self.dtype).swapaxes(0, 1)
            out[mine] = attend_dense(q[mine], kv[0, :, :length], kv[1, :, :length],
                                     self.windows[layer])
        return out

    def _room(self, sequence, layer, length, dtype):
        kv = self.arrays[sequence].get(layer)
        if kv is None or kv.shape[2] < length:
            bigger = np.zeros((2, self.model.num_kv_heads, max(64, 2 * length),
                               self.model.head_dim), dtype)
            if kv is not None:
                bigger[:, :, :kv.shape[2]] = kv
            kv = self.arrays[sequence][layer] = bigger
        return kv

    def fork(self, parent, child):
        self.arrays[child] = {layer: kv.copy() for layer, kv in self.arrays[parent].items()}
        self.lengths[child] = self.lengths[parent]
        return self.lengths[child]

    def truncate(self, sequence, length):
        self.lengths[sequence] = length
        return length

    def preempt(self, sequence):
        self.open(sequence, [])

    resume = open

    def close(self, sequence):
        del self.arrays[sequence], self.lengths[sequence]
