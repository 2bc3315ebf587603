"""An engine process that another one talks to: a line of JSON in, a line of JSON out.

    {"do": "ask", "questions": [...], "max_new": 24}     all at once, continuous batching
    {"do": "fork", "questions": [...]}                   the last answer goes on in as many ways
    {"do": "match"}                                      what of the shared beginning is cached
    {"do": "release"}                                    all sequences end; until then they are held

--local keeps K and V in a dense cache of its own: the reference.
"""

import json
import sys
import threading
import time

import kvpool
from kvpool.session import directory_of

from . import facts
from .cache import DaemonCache, staging_bytes
from .dense import LocalCache
from .engine import Engine
from .model import load_or_make


def cache_of(model, arguments, patience=30):
    """What a command's arguments ask for; with --local a dense cache of the same type. @patience:
    seconds to wait for a daemon that is not there, or not there again."""
    if arguments.local:
        return LocalCache(model, arguments.dtype)
    where = directory_of(arguments.dir)
    notice = threading.Timer(1, print, [f"waiting for a daemon in {where} ..."],
                             {"file": sys.stderr, "flush": True})
    notice.start()
    try:
        pool = kvpool.Pool(directory=arguments.dir, token=arguments.token,
                           staging_bytes=staging_bytes(model), connect_timeout=patience)
    finally:
        notice.cancel()
    return DaemonCache(model, pool, arguments.dtype)


class Worker:
    def __init__(self, model, cache):
        self.model, self.engine, self.last = model, Engine(model, cache), None

    def ask(self, questions, max_new=24):
        start = time.perf_counter()
        prompts = [self.model.tokeniser.chat(facts.messages(question)) for question in questions]
        return self._answers([self.engine.add(tokens, max_new) for tokens in prompts], start)

    def fork(self, questions, max_new=24):
        start = time.perf_counter()
        last, tokeniser = self.last, self.model.tokeniser
        ending = last.tokens[last.reached:]  # the stop token has no K and V yet
        turns = [ending + tokeniser.next_turn(question, last.finish == "stop")
                 for question in questions]
        return self._answers([self.engine.fork(last, turn, max_new) for turn in turns], start)

    def _answers(self, sequences, start):
        first = {}
        while not all(sequence.is_finished for sequence in sequences):
            for sequence in self.engine.step():
                first.setdefault(sequence.id, time.perf_counter() - start)
        self.last = sequences[0]
        return [{"text": self.model.tokeniser.decode(s.new).strip(), "tokens": s.new,
                 "length": s.done, "reused": s.cached, "computed": s.computed,
                 "first_s": first[s.id]} for s in sequences]

    def match(self):
        prompt = self.model.tokeniser.chat(facts.messages())
        return self.engine.cache.match(prompt)

    def release(self):
        for sequence in list(self.engine.running):
            self.engine.release(sequence)
        self.last = None
        return None


def serve_lines(worker):
    for line in sys.stdin:
        words = json.loads(line)
        try:
            answer = {"ok": getattr(worker, words.pop("do"))(**words)}
        except Exception as error:  # noqa: BLE001 - whoever asked decides
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def main(arguments):
    model = load_or_make(arguments.model)
    cache = cache_of(model, arguments)
    print(json.dumps({"ok": "ready"}), flush=True)
    serve_lines(Worker(model, cache))
