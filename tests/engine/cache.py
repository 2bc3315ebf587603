"""Where K and V are. DaemonCache keeps nothing itself; LocalCache is the dense reference.

Both are told the same: which sequences there are, which tokens one forward pass adds to them, and each
layer's q, k and v. A sequence is named by a number of the engine's choice.
"""

import contextlib

import kvpool
import numpy as np

DTYPES = {"f32": kvpool.F32, "f16": kvpool.F16, "bf16": kvpool.BF16}
ARRIVING_S = 30  # for so long another engine may take to compute what we need as well


class NoRoom(Exception):
    """No blocks for this sequence: release or preempt something, or wait."""
    sequence = None


class Gone(Exception):
    """The daemon is gone, and with it all sequences: reconnect() and open them anew."""


def staging_bytes(model, max_rows=512):
    """Of a connection whose steps have so many rows: one layer's q, k, v and output, and as much again
    while numpy still looks at the layer before."""
    return 2 * max_rows * 4 * model.head_dim * 2 * (model.num_q_heads + model.num_kv_heads)


@contextlib.contextmanager
def plainly():
    """The two answers that an engine acts on; others are raised as they are."""
    try:
        yield
    except (kvpool.NoBlocks, kvpool.Quota, kvpool.NeverFits) as error:
        raise NoRoom(str(error)) from error
    except (kvpool.Disconnected, kvpool.Stale) as error:  # Stale: a new daemon, asked by an old session
        raise Gone(str(error)) from error


class DaemonCache:
    """K and V in kvpoold, through @pool (kvpool.Pool): every method is one verb or two.

    @places: which prompts may share, keywords of kvpool.Prompt such as shared_domain and salt.
    """

    def __init__(self, model, pool, dtype="f32", **places):
        self.pool, self.places = pool, places
        self.kv = kvpool.Model(
            name=model.name, weights_revision=model.revision, num_layers=model.num_layers,
            num_q_heads=model.num_q_heads, num_kv_heads=model.num_kv_heads,
            k_head_dim=model.head_dim, v_head_dim=model.head_dim, dtype=DTYPES[dtype],
            groups=tuple(kvpool.LayerGroup(tuple(layers), window)
                         for window, layers in model.groups()))
        self.shape = pool.register_model(self.kv)

    def bytes_per_token(self):
        """In a block; of sliding groups, only while the window reaches it."""
        return sum(self.shape.block_bytes) / self.kv.block_tokens

    def _prompt(self, tokens):
        return kvpool.Prompt(self.kv, tokens, **self.places)

    def is_arriving(self, tokens, is_patient):
        """Whether another sequence, anybody's, is computing the beginning of what is missing.
        Who is patient waits for it instead."""
        with plainly():
            prompt = self._prompt(tokens)
            is_arriving = self.pool.match(prompt).arriving > 0
            if is_arriving and is_patient:
                with contextlib.suppress(kvpool.Miss, kvpool.Timeout):
                    self.pool.wait_arriving(prompt, timeout=ARRIVING_S)
            return is_arriving and not is_patient

    def match(self, tokens):
        """How many of the tokens are cached; asks only."""
        with plainly():
            return self.pool.match(self._prompt(tokens)).matched

    def open(self, sequence, tokens):
        """Holds what is cached of the tokens, and room for the rest. Returns how many are cached:
        never all, since somebody wants to know what comes after the last one."""
        with plainly():
            return self.pool.allocate(sequence, self._prompt(tokens), unfilled=True).matched

    @contextlib.contextmanager
    def stepping(self, rows):
        """One forward pass, [(sequence, tokens that it gains)]: gives attend(layer, q, k, v).
        It commits with its last layer; where that does not come, nothing has changed."""
        with plainly(), self.pool.stepping(self.kv, rows) as step:
            yield lambda layer, q, k, v: self.pool.attend(step, layer, q, k, v)

    def fork(self, parent, child):
        """The child's computed tokens; None: it has to be opened by itself."""
        with plainly():
            try:
                return self.pool.fork(parent, child).length
            except kvpool.Invalid:  # the parent's prompt is not computed to its end
                return None

    def truncate(self, sequence, length):
        """Its computed tokens; None: it is closed, and has to be opened anew."""
        with plainly():
            try:
                return self.pool.truncate(sequence, length).length
            except kvpool.Invalid:  # of what a sliding window has passed nothing is kept
                self.pool.release(sequence)
                return None

    def preempt(self, sequence):
        with plainly():
            self.pool.preempt(sequence)

    def resume(self, sequence, tokens):
        """The daemon kept the tokens: what it still has of K and V is used again."""
        with plainly():
            return self.pool.resume(sequence, unfilled=True).matched

    def close(self, sequence):
        with plainly():
            self.pool.release(sequence)

    def reconnect(self):
        self.pool.reconnect()


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
    """Causal attention of the last len(q) of len(k) positions. [row][head][dim], k and v [head][row][dim]."""
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
