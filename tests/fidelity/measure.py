"""What a cache costs the model: perplexity, agreement on the next token, needles found.

Every measure runs over any cache of engine.cache, so that a plan stands beside the dense baseline.
"""

import time
from dataclasses import dataclass, field

import numpy as np

from engine import facts, packages
from engine.engine import Engine

# Texts, and the words that they begin with: of Alice not the title page, whose few words no model
# foresees (they take Gemma's perplexity from 17.02 to 17.18).
BOOKS = {name: "" for name in packages.TEXTS} | {"alice29.txt": "CHAPTER I"}
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


def book(name):
    """The text of one of BOOKS."""
    text = packages.text(name)
    return text[text.index(BOOKS[name]):]


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
            wanted = np.array(tokens[at + 1:at + len(piece) + 1], np.int64)
            top = logits.max(axis=1, keepdims=True)
            norm = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1, dtype=np.float64))
            chosen = logits[np.arange(len(wanted)), wanted]
            reading.losses += (norm[:len(wanted)] - chosen).tolist()
            reading.best += logits.argmax(axis=1).tolist()
            reading.logits.append(logits[-1].copy())
        cache.close(number)
    reading.seconds = time.perf_counter() - start
    return reading


def agreement(reading, baseline):
    """Share of positions where both would have chosen the same next token."""
    return float(np.mean(np.array(reading.best) == np.array(baseline.best)))


def largest_difference(reading, baseline):
    """Of logits, after each piece that was read."""
    return float(max(np.abs(mine - theirs).max()
                     for mine, theirs in zip(reading.logits, baseline.logits)))


# (question, the sentence that is hidden, the word that a right answer has)
NEEDLES = [
    ("Where is the golden key?", "The golden key is hidden under the piano.", "piano"),
    ("What is the secret password of the museum?",
     "The secret password of the museum is marmalade.", "marmalade"),
    ("Who stole the painting?", "The painting was stolen by a baker called Oskar.", "oskar"),
    ("How many crowns does the parrot cost?", "The parrot costs ninety crowns.", "ninety"),
]
DEPTHS = (0.1, 0.5, 0.9)


def haystack(model, text, length, depth, needle):
    """Whole paragraphs of @text, about @length tokens, with one sentence more at @depth of them."""
    paragraphs, tokens = [], 0
    for paragraph in text.split("\n\n"):
        paragraph = " ".join(paragraph.split())
        if len(paragraph) < 80:
            continue
        tokens += len(model.tokeniser.encode(paragraph))
        if tokens > length:
            break
        paragraphs.append(paragraph)
    paragraphs.insert(round(depth * len(paragraphs)), needle)
    return "\n".join(paragraphs)


@dataclass
class Search:
    """Of one cache: for each needle whether it was found, and the answer's tokens."""
    found: list = field(default_factory=list)
    answers: list = field(default_factory=list)


def find_needles(model, cache, text, lengths, needles=NEEDLES, depths=DEPTHS, max_new=16):
    search = Search()
    asked, answered = facts.EXAMPLES[0]
    for length in lengths:
        for depth in depths:
            for question, sentence, word in needles:
                hay = haystack(model, text, length, depth, sentence)
                engine = Engine(model, cache)
                sequence = engine.add(model.tokeniser.chat([
                    {"role": "system", "content": f"{hay}\nAnswer in one short sentence."},
                    {"role": "user", "content": asked}, {"role": "assistant", "content": answered},
                    {"role": "user", "content": question}]), max_new)
                engine.run(sequence)
                engine.release(sequence)
                search.found.append(word in model.tokeniser.decode(sequence.new).lower())
                search.answers.append(sequence.new)
    return search
