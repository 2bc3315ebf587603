"""An OpenAI-style server on the engine: /v1/models, /v1/completions, /v1/chat/completions; /health.

One thread runs the engine, and is the only one that does; requests reach it through a queue and join
the next pass. Several servers over one daemon share what they compute. The best token always wins, so
temperature and its like are accepted and have no effect, and any model's name means the one that runs;
what would change the answer and cannot be had is refused (completion.py). A client that goes away ends its
sequence. usage.prompt_tokens_details.cached_tokens says what the daemon had of the prompt. Where the pool
has no room for a prompt, or the daemon refuses it, or there is none, the answer is 503. /health says 200
while the engine's thread lives.
"""

import asyncio
import contextlib
import json
import queue
import socket
import threading
from dataclasses import dataclass

import kvpool
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .cache import NoRoom
from .completion import ChatForm, Reading, Refused, TextForm, checked, given, stop_texts, turns_of
from .engine import Engine
from .model import load_or_make
from .worker import cache_of


@dataclass(eq=False)
class Request:
    """Of one completion. news: a text for each token, and one for the rest, then a Sequence when it is
    finished, or a Refused."""
    tokens: list
    max_new: int
    stops: tuple | None  # tokens that end it; None: the model's
    loop: asyncio.AbstractEventLoop
    news: asyncio.Queue
    sequence: object = None
    decode: object = None  # a function from its next token to text
    is_cancelled: bool = False

    def tell(self, news):
        self.loop.call_soon_threadsafe(self.news.put_nowait, news)


class EngineThread(threading.Thread):
    def __init__(self, engine):
        super().__init__(daemon=True)
        self.engine, self.arrivals, self.requests = engine, queue.SimpleQueue(), {}
        self.start()

    def run(self):
        while True:
            while not self.requests or not self.arrivals.empty():
                self._join(self.arrivals.get())
            try:
                for request in [r for r in self.requests.values() if r.is_cancelled]:
                    self._end(request)
                for sequence in self.engine.step():
                    self._progress(self.requests[sequence])
            except Exception as error:  # noqa: BLE001 - whatever it is, clients are told
                self._fail(error)

    def _join(self, request):
        request.sequence = self.engine.add(request.tokens, request.max_new, request.stops)
        request.decode = self.engine.model.tokeniser.decoder()
        self.requests[request.sequence] = request

    def _progress(self, request):
        sequence = request.sequence
        if sequence.finish != "stop":  # the stop token is no text
            request.tell(request.decode(sequence.new[-1]))
        if sequence.is_finished:
            request.tell(request.decode(None))
            self._end(request, sequence)

    def _fail(self, error):
        """Of the one that was refused, if it is about one; the others go on."""
        status = 503 if isinstance(error, (NoRoom, kvpool.KvpoolError)) else 500
        about = getattr(error, "sequence", None)
        failed = [self.requests[about]] if about else list(self.requests.values())
        for request in failed:  # all, before a daemon that hangs lets each release wait
            request.tell(Refused(status, f"{type(error).__name__}: {error}"))
        for request in failed:
            self._end(request)

    def _end(self, request, news=None):
        del self.requests[request.sequence]
        with contextlib.suppress(kvpool.KvpoolError):  # no daemon, and nothing that it holds
            self.engine.release(request.sequence)
        if news:
            request.tell(news)


class Server:
    def __init__(self, engine):
        self.model, self.thread = engine.model, EngineThread(engine)
        self.app = Starlette(routes=[
            Route("/health", self.health),
            Route("/v1/models", self.models),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ], exception_handlers={Refused: self.refuse, HTTPException: self.refuse_address,
                               Exception: self.fail})

    async def health(self, _):
        return Response(status_code=200 if self.thread.is_alive() else 503)

    async def models(self, _):
        return JSONResponse({"object": "list", "data": [
            {"id": self.model.name, "object": "model", "created": 0, "owned_by": "kvpoold"}]})

    async def refuse(self, _, error):
        return JSONResponse(error.body(), error.status)

    async def refuse_address(self, request, error):
        """A path or a method that is not there."""
        return await self.refuse(request, Refused(
            error.status_code, f"{request.method} {request.url.path}: {error.detail}"))

    async def fail(self, request, error):
        """A mistake of ours, which uvicorn logs."""
        return await self.refuse(request, Refused(500, f"{type(error).__name__}: {error}"))

    async def completions(self, request):
        words = await self.words(request)
        prompt = words.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
            prompt = prompt[0]  # some clients always send a list of prompts
        if isinstance(prompt, str):
            prompt = self.model.tokeniser.text(prompt)
        limit = given(words, "max_tokens")
        return await self.answer(request, words, prompt, limit, TextForm)

    async def chat(self, request):
        words = await self.words(request)
        tokens = self.model.tokeniser.chat(turns_of(words))
        limit = given(words, "max_completion_tokens", "max_tokens")
        return await self.answer(request, words, tokens, limit, ChatForm)

    async def words(self, request):
        try:
            words = await request.json()
            json.dumps(words, ensure_ascii=False).encode()  # half a surrogate pair is no text
        except (ValueError, RecursionError):  # the latter: nested too deep
            words = None
        return checked(words)

    async def answer(self, request, words, tokens, limit, form):
        max_new = self.check(tokens, limit, form.default_limit)
        asked = Request(tokens, max_new, () if words.get("ignore_eos") else None,
                        asyncio.get_running_loop(), asyncio.Queue())
        reading = Reading(asked, stop_texts(words), form(self.model.name), words)
        self.thread.arrivals.put(asked)
        # What is refused is refused with its status, so a stream begins with its first token.
        wanted = reading.first() if words.get("stream") else reading.whole()
        done = await unless_gone(request, wanted)
        if done is None:
            asked.is_cancelled = True
            return Response(status_code=499)  # as nginx says it; nobody is there to read it
        if words.get("stream"):
            return StreamingResponse(reading.stream(done), media_type="text/event-stream")
        return JSONResponse(done)

    def check(self, tokens, limit, default):
        """How many tokens it may get."""
        vocabulary = len(self.model.embedding)
        if not (isinstance(tokens, list) and tokens and
                all(type(token) is int and 0 <= token < vocabulary for token in tokens)):
            raise Refused(400, "prompt: wanted one, a text or a list of this model's tokens, not empty")
        room = self.model.max_tokens - len(tokens)
        max_new = max(min(default, room), 1) if limit is None else limit
        if type(max_new) is not int or max_new < 1:
            raise Refused(400, "max_tokens: wanted a number from 1")
        if max_new > room:
            raise Refused(400, f"{len(tokens)} tokens and {max_new} more are over this model's "
                               f"{self.model.max_tokens}")
        return max_new


async def unless_gone(request, work):
    """What @work gives; None, and it is cancelled, where the client goes away before."""
    async def leave():
        while (await request.receive())["type"] != "http.disconnect":
            pass
    work, gone = asyncio.ensure_future(work), asyncio.ensure_future(leave())
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else None
    finally:
        gone.cancel()
        work.cancel()


def main(arguments):
    model = load_or_make(arguments.model)
    cache = cache_of(model, arguments)
    listening = socket.create_server(("127.0.0.1", arguments.port))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/v1 answers as {model.name}", flush=True)
    config = uvicorn.Config(Server(Engine(model, cache)).app, log_level="warning",
                            timeout_graceful_shutdown=2)  # for streams that are under way
    uvicorn.Server(config).run(sockets=[listening])
