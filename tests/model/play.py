"""One script of everything that can happen to sequences, played over any cache.

First over a dense cache of the same type, which writes down each token and its logits; then over the
daemon, which is told the same tokens and must have chosen them itself, with logits within a bound.
"""

from dataclasses import dataclass, field

import numpy as np

from engine import packages
from engine.dense import LocalCache
from engine.engine import Engine

# Of logits, by what K and V are kept as, whatever happened in between. Of 16 bits half and more of that
# may be used when only the chunks are others: which way a value is rounded depends on the last bit of a
# sum, and that on how many rows went through at once. Beside a cache that does not round, single
# positions are beyond it: what 16 bits cost a model is for the fidelity harness to say.
BOUNDS = {"f32": 1e-3, "f16": 3e-2, "bf16": 3e-1}


@dataclass(eq=False)
class Trace:
    """What the dense cache said: each token that was chosen, and the logits it was chosen by."""
    tokens: list = field(default_factory=list)
    logits: list = field(default_factory=list)


class Player:
    """@trace None: this one writes it. @dtype: what K and V are kept as, by which another one is
    compared with it; errors are how far off it was."""

    def __init__(self, model, cache, trace=None, dtype="f32", disturb=None, **options):
        self.engine = Engine(model, cache, **options)
        self.is_first, self.trace = trace is None, trace or Trace()
        self.bound, self.may_tie = BOUNDS[dtype], dtype != "f32"
        self.disturb = disturb or (lambda: None)
        self.sequences, self.errors = {}, []

    def add(self, label, tokens):
        self.sequences[label] = self.engine.add(tokens, max_new=0)

    def generate(self, labels, count, together=True):
        for batch in [labels] if together else [[label] for label in labels]:
            running = [self.sequences[label] for label in batch]
            for _ in range(count):
                self.engine.run(*running)
                for sequence in running:
                    self.engine.extend(sequence, [self._chosen(sequence.logits)], max_new=0)

    def _chosen(self, logits):
        best = int(np.argmax(logits))
        if self.is_first:
            self.trace.tokens.append(best)
            self.trace.logits.append(logits)
            return best
        at = len(self.errors)
        wanted, dense = self.trace.tokens[at], self.trace.logits[at]
        self.errors.append(float(np.abs(logits - dense).max()))
        assert self.errors[at] <= self.bound, \
            f"logits {at} differ by {self.errors[at]}, not {self.bound}"
        assert best == wanted or self.may_tie and dense[wanted] - dense[best] < 2 * self.bound, \
            f"token {at} is {best}, not {wanted}"
        return wanted

    def fork(self, parent, child, tokens):
        self.sequences[child] = self.engine.fork(self.sequences[parent], tokens, max_new=0)

    def truncate(self, label, length, tokens):
        self.engine.truncate(self.sequences[label], length, tokens, max_new=0)

    def preempt(self, label):
        self.engine.preempt(self.sequences[label])

    def resume(self, label):
        self.engine.resume(self.sequences[label])

    def release(self, label):
        self.engine.release(self.sequences.pop(label))


def drawing(model):
    """A function that draws so many tokens: whole paragraphs of a book, of which the last one is cut, or
    for a tiny model any. (What is no text makes a real model's logits less exact: 16 bits of K and V
    then cost thrice as much.)"""
    if model.name.startswith("tiny"):
        rng = np.random.default_rng(3)
        return lambda length: rng.integers(3, len(model.embedding), length).tolist()
    book = iter(packages.text("alice29.txt").split("\n\n"))

    def draw(length):
        tokens = []
        while len(tokens) < length:
            tokens += model.tokeniser.encode("\n\n" + next(book))
        return tokens[:length]
    return draw


def everything(player, lengths, count=6, together=True):
    """Prompts with a common beginning, forks, truncation, preemption; disturbed in between."""
    draw = drawing(player.engine.model)
    first = player.engine.model.tokeniser.chat([])[:1]  # without it neither model is itself
    common = first + draw(max(lengths) - len(first))
    prompts = {n: common[:length // 2 + 1] + draw(length - length // 2 - 1)
               for n, length in enumerate(lengths)}
    names = list(prompts)
    for name, tokens in prompts.items():
        player.add(name, tokens)
        if name % 2:  # joins while others are at work
            player.engine.step()
    player.generate(names, count, together)
    player.disturb()
    longest, shortest = max(names, key=lambda n: lengths[n]), min(names, key=lambda n: lengths[n])
    for child in ("a", "b"):  # of a partial tail: both copy it
        player.fork(longest, child, draw(5))
    player.generate(["a", longest, "b"], count, together)
    player.truncate("a", lengths[longest] // 3 + 1, draw(3))
    player.truncate(shortest, 1, draw(20))
    player.preempt(longest)
    player.generate(["a", shortest], count, together)
    player.disturb()
    player.resume(longest)
    player.generate([longest, "b"], count, together)
    for label in list(player.sequences):
        player.release(label)
    player.disturb()
    for name in names[::2]:  # all again: whatever is cached, the answers are the same
        player.add(name, prompts[name] + draw(2))
    player.generate(names[::2], count, together)
    for label in list(player.sequences):
        player.release(label)


def trace_of(model, script, dtype, **options):
    """What the dense cache of @dtype says to a script, a function of a player."""
    player = Player(model, LocalCache(model, dtype), **options)
    script(player)
    return player.trace


def compare(model, cache, trace, script, dtype, **options):
    """Plays the script over @cache beside @trace; returns the player, with what was found."""
    player = Player(model, cache, trace, dtype, **options)
    script(player)
    assert len(player.errors) == len(trace.tokens)
    return player
