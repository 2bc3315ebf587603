"""Who runs when: continuous batching over a cache.

One step() is one forward pass for all sequences that have something to compute: prompts in chunks,
answers token by token, mixed. Sequences join and leave between steps. The best token always wins.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np

from .cache import Gone, NoRoom


@dataclass(eq=False)
class Sequence:
    """tokens: all that it has; the first `done` of them have K and V in the cache."""
    id: int
    tokens: list
    max_new: int
    stops: frozenset
    prompt: int          # tokens it came with
    done: int = 0
    cached: int = 0      # of the prompt, found in the cache
    computed: int = 0    # tokens that went through the model for it
    logits: np.ndarray = None  # after its last token
    is_preempted: bool = False
    is_finished: bool = False
    finish: str = ""     # "stop" or "length"
    new: list = field(default_factory=list)  # tokens it was given by the model


class Engine:
    def __init__(self, model, cache, chunk=256, max_rows=512):
        self.model, self.cache, self.chunk, self.max_rows = model, cache, chunk, max_rows
        self.running, self.waiting, self.ids = [], [], itertools.count(1)

    def add(self, tokens, max_new=64, stops=None):
        """A sequence joins; with max_new 0 only its prompt is computed."""
        stops = self.model.tokeniser.stops if stops is None else frozenset(stops)
        sequence = Sequence(next(self.ids), list(tokens), max_new, stops, len(tokens))
        sequence.cached = sequence.done = self.cache.open(sequence.id, sequence.tokens)
        self.running.append(sequence)
        return sequence

    def fork(self, parent, tokens=(), max_new=64):
        """Another one with the parent's computed tokens, and then @tokens of its own."""
        child = Sequence(next(self.ids), parent.tokens[:parent.done] + list(tokens), max_new,
                         parent.stops, parent.done + len(tokens), parent.done, parent.done)
        self.cache.fork(parent.id, child.id)
        self.running.append(child)
        return child

    def truncate(self, sequence, length, tokens=(), max_new=64):
        """Back to @length tokens, then on with @tokens."""
        stays = sequence.tokens[:length]
        if length < sequence.done:
            sequence.done = self.cache.truncate(sequence.id, stays)
        self._go_on(sequence, stays + list(tokens), max_new)

    def extend(self, sequence, tokens, max_new=64):
        """The next turn: all that it has stays, @tokens come after it."""
        self._go_on(sequence, sequence.tokens + list(tokens), max_new)

    def _go_on(self, sequence, tokens, max_new):
        sequence.tokens, sequence.prompt = tokens, len(tokens)
        sequence.max_new, sequence.new = max_new, []
        sequence.logits, sequence.is_finished, sequence.finish = None, False, ""

    def preempt(self, sequence):
        """Its blocks are let go of, its tokens stay; until resume() it does not run."""
        self.cache.preempt(sequence.id)
        sequence.done, sequence.is_preempted = 0, True

    def resume(self, sequence):
        sequence.done = self.cache.resume(sequence.id, sequence.tokens)
        sequence.is_preempted = False

    def recover(self):
        """The daemon was restarted and knows no sequence any more: all begin anew. What it kept is found."""
        self.cache.reconnect()
        for sequence in self.running:
            sequence.done = self.cache.open(sequence.id, sequence.tokens)
            sequence.is_preempted = False

    def release(self, sequence):
        self.running.remove(sequence)
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        self.cache.close(sequence.id)

    def is_idle(self):
        return all(s.is_finished or s.is_preempted and s not in self.waiting for s in self.running)

    def step(self):
        """One forward pass. Returns the sequences that got a token; perhaps none."""
        if self.waiting and not self._plan():
            self.resume(self.waiting.pop(0))
        rows = self._plan()
        if not rows:
            return []
        complete = [n for n, (s, t) in enumerate(rows) if s.done + len(t) == len(s.tokens)]
        try:
            with self.cache.stepping([(s.id, tokens) for s, tokens in rows]) as attend:
                logits = self._forward(rows, complete, attend)
        except NoRoom:
            if len(rows) == 1:
                raise
            self.preempt(rows[-1][0])  # the youngest makes room, and waits its turn
            self.waiting.append(rows[-1][0])
            return []
        except Gone:
            self.recover()
            return []
        for sequence, gained in rows:
            sequence.done += len(gained)
            sequence.computed += len(gained)
        for row, number in enumerate(complete):
            self._choose(rows[number][0], logits[row])
        return [rows[number][0] for number in complete]

    def _forward(self, rows, complete, attend):
        """Logits after the last token of each row that is @complete: only those are looked at."""
        tokens = np.concatenate([np.array(tokens, np.int64) for _, tokens in rows])
        positions = np.concatenate([np.arange(s.done, s.done + len(t)) for s, t in rows])
        ends = np.cumsum([len(tokens) for _, tokens in rows]) - 1
        return self.model.forward(tokens, positions, attend, ends[complete])

    def _plan(self):
        """[(sequence, tokens)] of the next pass: the rest of a prompt in chunks, or one token."""
        rows, left = [], self.max_rows
        for sequence in self.running:
            count = min(len(sequence.tokens) - sequence.done, self.chunk, left)
            if count > 0 and not sequence.is_finished and not sequence.is_preempted:
                rows.append((sequence, sequence.tokens[sequence.done:sequence.done + count]))
                left -= count
        return rows

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
        sequence.is_finished = bool(sequence.finish)

    def run(self, *sequences):
        """Steps until these are finished; returns what each was given."""
        while not all(sequence.is_finished for sequence in sequences):
            self.step()
        return [sequence.new for sequence in sequences]
