"""An OpenAI-style server on the engine: /v1/models, /v1/completions, /v1/chat/completions.

One thread runs the engine, and is the only one that does; requests reach it through a queue and join
the next pass. Several servers over one daemon share what they compute. The best token always wins, so
temperature and its like are accepted and have no effect. usage.prompt_tokens_details.cached_tokens says
what the daemon had. Where the pool has no room for a prompt the answer is 503.
"""

import asyncio
import contextlib
import json
import queue
import socket
import threading
import time
import uuid
from dataclasses import dataclass

import kvpool
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from .cache import NoRoom
from .engine import Engine
from .model import load_or_make
from .worker import cache_of


class Refused(Exception):
    """@status and a message for the client."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


@dataclass(eq=False)
class Request:
    """Of one completion. news: text pieces, then a Sequence when it is finished, or a Refused."""
    tokens: list
    max_new: int
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
                    self._end(request, None)
                for sequence in self.engine.step():
                    self._progress(self.requests[sequence])
            except NoRoom as error:
                self._end(self.requests[error.sequence], Refused(503, str(error)))
            except Exception as error:  # noqa: BLE001 - whatever it is, clients are told
                for request in list(self.requests.values()):
                    self._end(request, Refused(500, f"{type(error).__name__}: {error}"))

    def _join(self, request):
        request.sequence = self.engine.add(request.tokens, request.max_new)
        request.decode = self.engine.model.tokeniser.decoder()
        self.requests[request.sequence] = request

    def _progress(self, request):
        sequence = request.sequence
        if sequence.finish != "stop":  # the stop token is no text
            request.tell(request.decode(sequence.new[-1]))
        if sequence.is_finished:
            request.tell(request.decode(None))
            self._end(request, sequence)

    def _end(self, request, news):
        del self.requests[request.sequence]
        with contextlib.suppress(kvpool.KvpoolError):  # no daemon, and nothing that it holds
            self.engine.release(request.sequence)
        request.tell(news)


class Server:
    def __init__(self, engine):
        self.model, self.thread = engine.model, EngineThread(engine)
        self.app = Starlette(routes=[
            Route("/v1/models", self.models),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ], exception_handlers={Refused: self.refuse})

    async def models(self, _):
        return JSONResponse({"object": "list", "data": [
            {"id": self.model.name, "object": "model", "created": 0, "owned_by": "kvpoold"}]})

    async def refuse(self, _, error):
        kind = "invalid_request_error" if error.status == 400 else "server_error"
        return JSONResponse({"error": {"message": str(error), "type": kind, "param": None,
                                       "code": None}}, error.status)

    async def completions(self, request):
        words = await self.words(request)
        prompt = words.get("prompt")
        if isinstance(prompt, str):
            prompt = self.model.tokeniser.text(prompt)
        return await self.answer(words, prompt, given(words, 16, "max_tokens"), TextForm)

    async def chat(self, request):
        words = await self.words(request)
        turns = words.get("messages")
        if not (isinstance(turns, list) and turns and all(map(is_turn, turns))):
            raise Refused(400, "messages: wanted turns of role (system, user, assistant) and "
                               "content, a text")
        tokens = self.model.tokeniser.chat([
            {"role": ROLES[turn["role"]], "content": text_of(turn["content"])} for turn in turns])
        limit = given(words, 256, "max_completion_tokens", "max_tokens")
        return await self.answer(words, tokens, limit, ChatForm)

    async def words(self, request):
        try:
            words = await request.json()
        except ValueError:
            words = None
        if not isinstance(words, dict):
            raise Refused(400, "the body is no JSON object")
        if given(words, 1, "n") != 1:
            raise Refused(400, "n: one choice an answer here, the best one")
        return words

    async def answer(self, words, tokens, max_new, form):
        self.check(tokens, max_new)
        stops = words.get("stop") or []
        stops = [stops] if isinstance(stops, str) else stops
        request = Request(tokens, max_new, asyncio.get_running_loop(), asyncio.Queue())
        self.thread.arrivals.put(request)
        reading = Reading(request, stops, form(self.model.name), words)
        first = await reading.first()  # what is refused is refused with its status
        if words.get("stream"):
            return StreamingResponse(reading.stream(first), media_type="text/event-stream")
        return JSONResponse(await reading.whole(first))

    def check(self, tokens, max_new):
        vocabulary = len(self.model.embedding)
        if not (isinstance(tokens, list) and tokens and
                all(type(token) is int and 0 <= token < vocabulary for token in tokens)):
            raise Refused(400, "prompt: wanted a text or a list of this model's tokens, not empty")
        if type(max_new) is not int or max_new < 1:
            raise Refused(400, "max_tokens: wanted a number from 1")
        if len(tokens) + max_new > self.model.max_tokens:
            raise Refused(400, f"{len(tokens)} tokens and {max_new} more are over this model's "
                               f"{self.model.max_tokens}")


class TextForm:
    kind, kind_of_piece, prefix = "text_completion", "text_completion", "cmpl"

    def __init__(self, model):
        self.head = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time()),
                     "model": model}

    def choice(self, text, finish):
        return {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}

    piece = choice

    def whole(self, text, finish, usage):
        return {**self.head, "object": self.kind, "choices": [self.choice(text, finish)],
                "usage": usage}

    def part(self, choices, usage=None):
        return {**self.head, "object": self.kind_of_piece, "choices": choices, "usage": usage}


class ChatForm(TextForm):
    kind, kind_of_piece, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def choice(self, text, finish):
        return {"index": 0, "message": {"role": "assistant", "content": text},
                "finish_reason": finish, "logprobs": None}

    def piece(self, text, finish):
        return {"index": 0, "delta": {"role": "assistant", "content": text} if text else {},
                "finish_reason": finish, "logprobs": None}


class Reading:
    """What comes of one request, cut at the client's stop texts, in one of the two forms."""

    def __init__(self, request, stops, form, words):
        self.request, self.stops, self.form = request, stops, form
        self.wants_usage = bool((words.get("stream_options") or {}).get("include_usage"))
        self.finish, self.usage = None, None

    async def first(self):
        news = await self.request.news.get()
        if isinstance(news, Refused):
            raise news
        return news

    async def pieces(self, news):
        """Pieces of text that are sure not to be the beginning of a stop text."""
        text, told = "", 0
        hold = max((len(stop) - 1 for stop in self.stops), default=0)
        try:
            while isinstance(news, str):
                text += news
                cuts = [at for at in (text.find(stop) for stop in self.stops) if at >= 0]
                sure = min(cuts) if cuts else len(text) - hold
                if sure > told:
                    yield text[told:sure]
                    told = sure
                if cuts:
                    self.finish = "stop"
                    break
                news = await self.request.news.get()
            else:
                if news is None or isinstance(news, Refused):
                    raise news or Refused(500, "cancelled")
                self.finish = news.finish
                if len(text) > told:
                    yield text[told:]
        finally:  # also when the client went away
            self.request.is_cancelled = not self.request.sequence.is_finished
            self.usage = usage_of(self.request)

    async def whole(self, news):
        text = "".join([piece async for piece in self.pieces(news)])
        return self.form.whole(text, self.finish, self.usage)

    async def stream(self, news):
        form = self.form
        async for piece in self.pieces(news):
            yield event(form.part([form.piece(piece, None)]))
        yield event(form.part([form.piece("", self.finish)]))
        if self.wants_usage:
            yield event(form.part([], self.usage))
        yield "data: [DONE]\n\n"


ROLES = {role: role for role in ("system", "user", "assistant")} | {"developer": "system"}


def given(words, default, *keys):
    """The first of the keys that is there, and not null."""
    return next((words[key] for key in keys if words.get(key) is not None), default)


def text_of(content):
    """Of a turn: a text, or parts of type text. None: it is something else."""
    if isinstance(content, list) and all(
            isinstance(part, dict) and part.get("type") == "text" and
            isinstance(part.get("text"), str) for part in content):
        return "".join(part["text"] for part in content)
    return content if isinstance(content, str) else None


def is_turn(turn):
    return (isinstance(turn, dict) and turn.get("role") in list(ROLES) and
            text_of(turn.get("content")) is not None)


def event(part):
    return f"data: {json.dumps(part)}\n\n"


def usage_of(request):
    sequence, prompt = request.sequence, len(request.tokens)
    new = len(sequence.new)
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new,
            "prompt_tokens_details": {"cached_tokens": sequence.cached}}


def main(arguments):
    model = load_or_make(arguments.model)
    cache = cache_of(model, arguments)
    listening = socket.create_server(("127.0.0.1", arguments.port))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/v1 answers as {model.name}", flush=True)
    config = uvicorn.Config(Server(Engine(model, cache)).app, log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])
