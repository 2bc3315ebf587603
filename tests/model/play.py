"""One script of everything that can happen to sequences, played over any cache.

First over the dense cache, which writes down each token and its logits; then over the daemon, which is
told the same tokens and must have chosen them itself, with logits within a bound.
"""

import functools
import itertools
from dataclasses import dataclass, field

import numpy as np

from engine import packages
from engine.dense import LocalCache
from engine.engine import Engine

# Of logits, by what K and V are kept as.
BOUNDS = {"f32": 1e-3, "f16": 3e-2, "bf16": 3e-1}


@dataclass(eq=False)
class Trace:
    """What the dense cache said: each token that was chosen, and the logits it was chosen by."""
    tokens: list = field(default_factory=list)
    logits: list = field(default_factory=list)


class Player:
    """@trace None: this one writes it. @bounds, of each token's logits, and @may_tie: how another one
    is compared with it; errors are how far off it was."""

    def __init__(self, model, cache, trace=None, bounds=(), may_tie=False, disturb=None, **options):
        self.engine = Engine(model, cache, **options)
        self.is_first, self.trace = trace is None, trace or Trace()
        self.bounds, self.may_tie, self.disturb = bounds, may_tie, disturb or (lambda: None)
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
        wanted, dense, bound = self.trace.tokens[at], self.trace.logits[at], self.bounds[at]
        self.errors.append(float(np.abs(logits - dense).max()))
        assert self.errors[at] <= bound, f"logits {at} differ by {self.errors[at]}, not {bound}"
        assert best == wanted or self.may_tie and dense[wanted] - dense[best] < 2 * bound, \
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
    """A function that draws so many tokens: from a book, or for a tiny model any. (What is no text
    makes a real model's logits less exact: 16 bits of K and V then cost thrice as much.)"""
    if model.name.startswith("tiny"):
        rng = np.random.default_rng(3)
        return lambda length: rng.integers(3, len(model.embedding), length).tolist()
    book = iter(model.tokeniser.encode(packages.text("alice29.txt")))
    return lambda length: list(itertools.islice(book, length))


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


def trace_of(model, script, **options):
    """What the dense f32 cache says to a script, a function of a player."""
    player = Player(model, LocalCache(model), **options)
    script(player)
    return player.trace


@functools.cache
def noise_of(model, trace, script, dtype):
    """How far off dense caches of @dtype are, for each token. Which way a value is rounded depends on
    the last bit of a sum, and that on how many rows went through at once: two dense caches that read
    the same text in other chunks differ as much from each other as from one that does not round."""
    players = [Player(model, LocalCache(model, dtype), trace, [np.inf] * len(trace.tokens), True,
                      chunk=chunk) for chunk in (256, 64)]
    for player in players:
        script(player)
    return np.max([player.errors for player in players], axis=0)


def compare(model, cache, trace, script, dtype, **options):
    """Plays the script over @cache beside @trace; returns the player, with what was found.

    All logits are within BOUNDS, but of a real model with 16 bits a few may be twice as far off as
    those of a dense cache of 16 bits. (What is asked of both for the same q, k and v gives the same:
    test_rounding.py.)"""
    is_exact = dtype == "f32"
    bounds = np.full(len(trace.tokens), BOUNDS[dtype])
    if not is_exact and not model.name.startswith("tiny"):
        bounds = np.maximum(bounds, 2 * noise_of(model, trace, script, dtype))
    player = Player(model, cache, trace, bounds, not is_exact, **options)
    script(player)
    assert len(player.errors) == len(trace.tokens)
    assert np.mean(np.array(player.errors) > BOUNDS[dtype]) <= 0.05
    return player
