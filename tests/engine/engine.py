"""Who runs when: continuous batching over a cache.

One step() is one forward pass for all sequences that have something to compute: prompts in chunks,
answers token by token, mixed. Sequences join and leave between steps. The best token always wins.
"""

import itertools
import math
import time
from dataclasses import dataclass, field

import numpy as np

from .cache import Gone, NoRoom

PATIENCE_S = 30  # for so long one waits for what another engine computes, until we compute it as well


@dataclass(eq=False)
class Sequence:
    """tokens: all that it has; the first `done` of them have K and V in the cache, and the first
    `reached` had at some time. Where it stands:

        in waiting  is_open  is_ready
        yes         no       no        new, or it joins anew since the daemon is another one
        no          yes      yes       it has blocks, and runs while `done` is short of its tokens
        no          yes      no        preempted: nothing happens until resume() ...
        yes         yes      no        ... and then it wants blocks again
        no          no       no        preempted, and the cache knows it no longer: resume() as well
    """
    id: int
    tokens: list
    stops: frozenset
    max_new: int
    done: int = 0
    reached: int = 0
    cached: int = 0         # found in the cache when it joined
    computed: int = 0       # went through the model for it
    is_open: bool = False   # the cache knows it
    is_ready: bool = False  # and it has its blocks
    gives_up: float = math.inf  # when it waits no longer for another engine; set once it does
    new: list = field(default_factory=list)  # tokens that it was given since it was last asked
    logits: np.ndarray = None  # after its last token
    finish: str = ""        # "stop" or "length", once it is finished

    @property
    def is_finished(self):
        return bool(self.finish)


class Engine:
    def __init__(self, model, cache, chunk=256, max_rows=512):
        self.model, self.cache, self.chunk, self.max_rows = model, cache, chunk, max_rows
        self.running, self.ids = [], itertools.count(1)
        self.waiting = []  # of those, who have no blocks and want some

    # ---- what can be asked between steps

    def add(self, tokens, max_new=64, stops=None):
        """A sequence joins; with max_new 0 only its prompt is computed."""
        stops = self.model.tokeniser.stops if stops is None else frozenset(stops)
        sequence = Sequence(next(self.ids), list(tokens), stops, max_new)
        self.running.append(sequence)
        self.waiting.append(sequence)
        return sequence

    def fork(self, parent, tokens=(), max_new=64):
        """Another one with what the parent has computed, and then @tokens of its own."""
        shared = parent.tokens[:parent.reached]
        child = Sequence(next(self.ids), shared + list(tokens), parent.stops, max_new)
        done = self._tell("fork", parent, child.id)
        self.running.append(child)
        if done is None:
            self.waiting.append(child)
        else:
            child.done = child.reached = child.cached = done
            child.is_open = child.is_ready = True
        return child

    def truncate(self, sequence, length, tokens=(), max_new=64):
        """Back to @length tokens, then on with @tokens."""
        if sequence.is_open and not sequence.is_ready:  # preempted: the cache knows the old tokens
            self._tell("close", sequence)
            sequence.is_open = False
        elif length < sequence.done:
            done = self._tell("truncate", sequence, length)
            if done is None:
                self._reopen(sequence)
            else:
                sequence.done = done
        sequence.tokens = sequence.tokens[:length]
        sequence.reached = min(sequence.reached, length)
        self.extend(sequence, tokens, max_new)

    def extend(self, sequence, tokens, max_new=64):
        """The next turn: all that it has stays, @tokens come after it."""
        sequence.tokens = sequence.tokens + list(tokens)
        sequence.max_new, sequence.new = max_new, []
        sequence.logits, sequence.finish = None, ""

    def preempt(self, sequence):
        """Its blocks are let go of, its tokens stay; until resume() it does not run."""
        self._tell("preempt", sequence)
        sequence.done, sequence.is_ready = 0, False
        if sequence in self.waiting:
            self.waiting.remove(sequence)

    def resume(self, sequence):
        """What is still cached of it is used again."""
        self.waiting.append(sequence)

    def release(self, sequence):
        self.running.remove(sequence)
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        self._tell("close", sequence)

    def run(self, *sequences):
        """Steps until these are finished; returns what each was given."""
        while not all(sequence.is_finished for sequence in sequences):
            if not self.waiting and not self._plan():
                raise ValueError("what has no token to compute, or is preempted, does not finish")
            self.step()
        return [sequence.new for sequence in sequences]

    # ---- a step

    def step(self):
        """One forward pass. Returns the sequences that got a token; perhaps none."""
        rows = []
        try:
            self._admit()
            rows = self._plan()
            return self._pass(rows) if rows else []
        except NoRoom as error:
            if len(rows) < 2:
                error.sequence = error.sequence or rows[0][0]
                raise
            self.preempt(rows[-1][0])  # the youngest makes room, and waits its turn
            self.waiting.append(rows[-1][0])
        except Gone:
            self._recover()
        return []

    def _admit(self):
        """Who waits gets its blocks: a new one unless another is computing what it needs just now,
        one that was preempted when nobody else runs. A refusal names the one that it is about."""
        for sequence in list(self.waiting):
            is_idle = not self._plan()
            if not is_idle and sequence.is_open:
                continue
            try:
                if not sequence.is_open and self._waits(sequence, is_idle):
                    continue
                verb = self.cache.resume if sequence.is_open else self.cache.open
                sequence.done = verb(sequence.id, sequence.tokens)
            except Exception as error:
                if isinstance(error, NoRoom) and not is_idle:  # somebody else will make room
                    return
                error.sequence = sequence
                raise
            if sequence.reached == 0:  # else it comes back to what it computed itself
                sequence.cached = sequence.done
            sequence.is_open = sequence.is_ready = True
            self.waiting.remove(sequence)

    def _waits(self, sequence, is_idle):
        """Whether another engine is computing what it needs just now, and has time left for that: it
        may have stopped in the middle, and while we are busy that is not for ever either."""
        if time.monotonic() >= sequence.gives_up or \
                not self.cache.is_arriving(sequence.tokens, is_idle):
            return False
        sequence.gives_up = min(sequence.gives_up, time.monotonic() + PATIENCE_S)
        return True

    def _plan(self):
        """[(sequence, tokens)] of the next pass: the rest of a prompt in chunks, or one token."""
        rows, left = [], self.max_rows
        for sequence in self.running:
            count = min(len(sequence.tokens) - sequence.done, self.chunk, left)
            if count > 0 and sequence.is_ready and not sequence.is_finished:
                rows.append((sequence, sequence.tokens[sequence.done:sequence.done + count]))
                left -= count
        return rows

    def _pass(self, rows):
        tokens = np.concatenate([np.array(tokens, np.int64) for _, tokens in rows])
        positions = np.concatenate([np.arange(s.done, s.done + len(t)) for s, t in rows])
        ends = np.cumsum([len(tokens) for _, tokens in rows]) - 1
        # Logits are wanted after the last token of those that have no more.
        last = [n for n, (s, t) in enumerate(rows) if s.done + len(t) == len(s.tokens)]
        with self.cache.stepping([(s.id, tokens) for s, tokens in rows]) as attend:
            logits = self.model.forward(tokens, positions, attend, ends[last])
        for sequence, gained in rows:
            sequence.done += len(gained)
            sequence.reached = max(sequence.reached, sequence.done)
            sequence.computed += len(gained)
        for row, number in enumerate(last):
            self._choose(rows[number][0], logits[row])
        return [rows[number][0] for number in last]

    def _choose(self, sequence, logits):
        sequence.logits = logits
        if sequence.max_new > 0:
            token = int(np.argmax(logits))
            sequence.new.append(token)
            sequence.tokens.append(token)
            if token in sequence.stops:
                sequence.finish = "stop"
        if not sequence.finish and len(sequence.new) >= sequence.max_new:
            sequence.finish = "length"

    # ---- when the daemon is another one by now

    def _tell(self, verb, sequence, *args):
        """A verb about a sequence that the cache knows, if it does; else, and if it does so no
        longer, None."""
        if not sequence.is_open:
            return None
        try:
            return getattr(self.cache, verb)(sequence.id, *args)
        except Gone:
            self._recover()
            return None

    def _recover(self):
        """No sequence is known any more: all join anew. What the daemon has kept is found."""
        for sequence in self.running:
            if sequence.is_ready:
                self._reopen(sequence)
            sequence.is_open = False
        self.cache.reconnect()

    def _reopen(self, sequence):
        sequence.done, sequence.is_open, sequence.is_ready = 0, False, False
        if sequence not in self.waiting:
            self.waiting.append(sequence)
