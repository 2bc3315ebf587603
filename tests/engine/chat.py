"""A chat in a terminal. Start it twice: the second one finds the beginning computed.

`kvpool status` and `kvpool sessions` show both. An empty line, the end of input or Ctrl-C leaves.
"""

import itertools
import sys
import time

import kvpool

from . import facts, packages
from .cache import Gone, NoRoom
from .engine import Engine
from .model import load_or_make
from .worker import cache_of

CHUNK = 64  # small, so that the bar moves


def step(engine):
    """One pass, as soon as there is a daemon."""
    for attempt in itertools.count():
        try:
            return engine.step()
        except kvpool.Disconnected:
            if attempt == 0:
                print("\n  [the daemon is gone: waiting for the next one]", flush=True)
            time.sleep(1)


def prefill(engine, sequence):
    """Steps until the first token of the answer, with a bar."""
    length, before = len(sequence.tokens), sequence.done
    bar = packages.Progress("reading", length - before)
    while not sequence.new:
        if sequence in engine.waiting and is_read_elsewhere(engine, sequence):
            bar.say("another engine reads the same just now: waiting ...")
        step(engine)
        if sequence.done < before:  # another daemon: all is read again
            bar = packages.Progress("reading", length - sequence.done)
        else:
            bar.add(sequence.done - before)
        before = sequence.done
    bar.close()


def is_read_elsewhere(engine, sequence):
    try:
        return engine.cache.is_arriving(sequence.tokens, False)
    except Gone:
        return False


def begun(decode):
    """@decode, but for the spaces that a text begins with: a base model's answers do."""
    is_begun = False

    def piece(token):
        nonlocal is_begun
        text = decode(token)
        text = text if is_begun else text.lstrip(" ")
        is_begun = is_begun or text != ""
        return text
    return piece


def answer(engine, sequence):
    """Prints the answer as it comes."""
    start, computed, length = time.perf_counter(), sequence.computed, len(sequence.tokens)
    prefill(engine, sequence)
    first = time.perf_counter() - start
    reused = max(length - (sequence.computed - computed), 0)  # a daemon that died has it read again
    decode, shown = begun(engine.model.tokeniser.decoder()), 0
    while True:
        for token in sequence.new[shown:]:
            if token not in sequence.stops:
                print(decode(token), end="", flush=True)
        shown = len(sequence.new)
        if sequence.is_finished:
            break
        step(engine)
    print(decode(None), end="")
    seconds = time.perf_counter() - start - first
    speed = f", {(shown - 1) / seconds:.0f} tokens/s" if shown > 1 and seconds > 0 else ""
    print(f"\n  [{reused} tokens reused, {sequence.computed - computed} computed, "
          f"first after {first:.2f} s{speed}]\n")


def main(arguments):
    model = load_or_make(arguments.model)
    try:
        talk(Engine(model, cache_of(model, arguments, patience=5), chunk=CHUNK))
    except KeyboardInterrupt:
        print()
    return 0


def talk(engine):
    tokeniser, sequence, asks = engine.model.tokeniser, None, sys.stdin.isatty()
    print("The guide of the Alder Bay Harbour Museum answers: ask about tickets, ships, the cat ...\n")
    while True:
        if asks:
            print("> ", end="", flush=True)
        question = sys.stdin.readline().strip()
        if not question:
            return
        if not asks:
            print(f"> {question}")
        if sequence is None:
            sequence = engine.add(tokeniser.chat(facts.messages(question)), 64)
        else:
            engine.extend(sequence, tokeniser.next_turn(question, sequence.finish == "stop"), 64)
        is_over = len(sequence.tokens) > engine.model.max_tokens - 512
        try:
            answer(engine, sequence)
        except NoRoom as error:
            print(f"\n  [no room in the pool: {error}]")
            is_over = True
        if is_over:
            print("  [the conversation ends here; the next question begins another]\n")
            engine.release(sequence)
            sequence = None
