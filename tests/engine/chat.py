"""A chat in a terminal. Start it twice: the second one finds the beginning computed.

`kvpool status` and `kvpool sessions` show both. An empty line or the end of input leaves.
"""

import sys
import time

from . import facts, packages
from .dense import LocalCache
from .engine import Engine
from .model import load
from .worker import connect

CHUNK = 64  # small, so that the bar moves


def prefill(engine, sequence):
    """Steps until the first token of the answer, with a bar."""
    bar = packages.Progress("reading", len(sequence.tokens))
    while not sequence.new:
        before = sequence.done
        engine.step()
        bar.add(sequence.done - before)
    bar.close()


def answer(engine, sequence):
    """Prints the answer as it comes."""
    start, computed = time.perf_counter(), sequence.computed
    had = sequence.done or None
    prefill(engine, sequence)
    first = time.perf_counter() - start
    decode, shown = engine.model.tokeniser.decoder(), 0
    while True:
        for token in sequence.new[shown:]:
            if token not in sequence.stops:
                print(decode(token), end="", flush=True)
        shown = len(sequence.new)
        if sequence.is_finished:
            break
        engine.step()
    print(decode(None), end="")
    seconds = time.perf_counter() - start - first
    reused = had if had is not None else sequence.cached
    speed = f", {(shown - 1) / seconds:.0f} tokens/s" if shown > 1 and seconds > 0 else ""
    print(f"\n  [{reused} tokens reused, {sequence.computed - computed} computed, "
          f"first after {first:.2f} s{speed}]\n")


def main(arguments):
    try:
        model = load(arguments.model)
    except packages.Unavailable as why:
        print(f"{why}\nA tiny random model instead: it says nothing sensible.")
        model = load("tiny-llama")
    cache = (LocalCache(model) if arguments.local else
             connect(model, arguments.dir, arguments.token, arguments.dtype, patience=5))
    engine = Engine(model, cache, chunk=CHUNK)
    asks = sys.stdin.isatty()
    print("The guide of the Alder Bay Harbour Museum answers: ask about tickets, ships, the cat ...\n")
    sequence = None
    while True:
        if asks:
            print("> ", end="", flush=True)
        question = sys.stdin.readline().strip()
        if not question:
            return 0
        if not asks:
            print(f"> {question}")
        if sequence is None:
            sequence = engine.add(model.tokeniser.chat(facts.messages(question)), 64)
        else:
            engine.extend(sequence, model.tokeniser.next_turn(question, sequence.finish == "stop"), 64)
        answer(engine, sequence)
        if len(sequence.tokens) > model.max_tokens - 512:
            print("  [the conversation is as long as this model can: it begins anew]")
            engine.release(sequence)
            sequence = None
