"""Where K and V are: in kvpoold. Nothing of them is kept here; dense.py is the reference that does.

A cache is told which sequences there are, which tokens one forward pass adds to them, and each layer's
q, k and v. A sequence is named by a number of the engine's choice.
"""

import contextlib

import kvpool

DTYPES = {"f32": kvpool.F32, "f16": kvpool.F16, "bf16": kvpool.BF16}
ARRIVING_S = 0.5  # for so long a pass waits for what another engine computes just now


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
        Who is patient waits for it a moment."""
        with plainly():
            prompt = self._prompt(tokens)
            is_arriving = self.pool.match(prompt).arriving > 0
            if not (is_arriving and is_patient):
                return is_arriving
            try:
                self.pool.wait_arriving(prompt, timeout=ARRIVING_S)
            except kvpool.Timeout:
                return True
            except kvpool.Miss:  # it will not come
                pass
            return False

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
