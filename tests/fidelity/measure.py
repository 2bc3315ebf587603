"""What a cache costs the model: perplexity, agreement on the next token, needles found.

Every measure runs over any cache of engine.cache, so that a plan stands beside the dense baseline.
"""

import time
from dataclasses import dataclass, field

import numpy as np

WINDOW = 2048  # tokens of one window of text
ROWS = 256     # of them through the model at a time: a row of logits is as wide as the vocabulary


@dataclass
class Reading:
    """Of one cache over one text."""
    losses: list = field(default_factory=list)  # nats, of each predicted token
    best: list = field(default_factory=list)    # the token that the model would have chosen
    logits: list = field(default_factory=list)  # of the last row of each window
    seconds: float = 0.0

    @property
    def perplexity(self):
        return float(np.exp(np.mean(self.losses)))


def windows(model, text, count, length=WINDOW):
    """@count windows of @length tokens from the beginning of @text, each with the first token that
    the model wants."""
    tokens = model.tokeniser.text("")
    body = model.tokeniser.encode(text)
    step = length - len(tokens)
    found = [tokens + body[n * step:(n + 1) * step] for n in range(count)]
    if any(len(window) < length for window in found):
        raise ValueError(f"the text has no {count} windows of {length} tokens")
    return found


def read_text(model, cache, texts, rows=ROWS):
    """Each window of @texts through a sequence of its own, all logits looked at."""
    reading, start = Reading(), time.perf_counter()
    for number, tokens in enumerate(texts, 1):
        done = cache.open(number, tokens)
        for at in range(0, len(tokens), rows):
            piece = tokens[at:at + rows]
            if at + len(piece) <= done:
                raise ValueError("a window was cached before it was read: its logits are not to be had")
            with cache.stepping([(number, piece)]) as attend:
                logits = model.forward(np.array(piece), np.arange(at, at + len(piece)), attend)
            wanted = np.array(tokens[at + 1:at + len(piece) + 1])
            top = logits.max(axis=1, keepdims=True)
            norm = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1, dtype=np.float64))
            chosen = logits[np.arange(len(wanted)), wanted]
            reading.losses += (norm[:len(wanted)] - chosen).tolist()
            reading.best += logits.argmax(axis=1).tolist()
            reading.logits.append(logits[-1].copy())
        cache.close(number)
    reading.seconds = time.perf_counter() - start
    return reading
