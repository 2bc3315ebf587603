"""An OpenAI-style server on the engine: /v1/models, /v1/completions, /v1/chat/completions.

One thread runs the engine, and is the only one that does; requests reach it through a queue and join
the next pass. Several servers over one daemon share what they compute. The best token always wins, so
temperature and its like are accepted and have no effect, and any model's name means the one that runs;
what would change the answer and cannot be had (NEUTRAL) is refused. A client that goes away ends its
sequence. usage.prompt_tokens_details.cached_tokens says what the daemon had of the prompt. Where the pool
has no room for a prompt, or there is no daemon, the answer is 503.
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
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
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

    def body(self):
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": None, "code": None}}


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
            except NoRoom as error:
                self._end(self.requests[error.sequence], Refused(503, str(error)))
            except Exception as error:  # noqa: BLE001 - whatever it is, clients are told
                status = 503 if isinstance(error, kvpool.KvpoolError) else 500
                for request in list(self.requests.values()):
                    self._end(request, Refused(status, f"{type(error).__name__}: {error}"))

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
            Route("/v1/models", self.models),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ], exception_handlers={Refused: self.refuse, HTTPException: self.refuse_address,
                               Exception: self.fail})

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
        limit = given(words, None, "max_tokens")
        return await self.answer(request, words, prompt, limit, TextForm)

    async def chat(self, request):
        words = await self.words(request)
        turns = words.get("messages")
        if not (isinstance(turns, list) and turns and all(map(is_turn, turns))):
            raise Refused(400, "messages: wanted turns of role (system, user, assistant) and "
                               "content, a text")
        tokens = self.model.tokeniser.chat([
            {"role": ROLES[turn["role"]], "content": text_of(turn["content"])} for turn in turns])
        limit = given(words, None, "max_completion_tokens", "max_tokens")
        return await self.answer(request, words, tokens, limit, ChatForm)

    async def words(self, request):
        try:
            words = await request.json()
        except ValueError:
            words = None
        if not isinstance(words, dict):
            raise Refused(400, "the body is no JSON object")
        for key, neutral in NEUTRAL.items():
            if not is_like(words.get(key), neutral):
                raise Refused(400, f"{key}: not here, only {json.dumps(neutral)}")
        if not isinstance(words.get("stream_options") or {}, dict):
            raise Refused(400, "stream_options: wanted an object")
        return words

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


class TextForm:
    kind, kind_of_piece, prefix = "text_completion", "text_completion", "cmpl"
    default_limit = 16  # tokens

    def __init__(self, model):
        self.head = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time()),
                     "model": model}

    def choice(self, text, finish):
        return {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}

    piece = choice

    def opening(self):
        """What a stream begins with."""
        return []

    def whole(self, text, finish, usage):
        return {**self.head, "object": self.kind, "choices": [self.choice(text, finish)],
                "usage": usage}

    def part(self, choices, usage=None):
        return {**self.head, "object": self.kind_of_piece, "choices": choices, "usage": usage}


class ChatForm(TextForm):
    kind, kind_of_piece, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"
    default_limit = 256

    def choice(self, text, finish):
        return {"index": 0, "message": {"role": "assistant", "content": text},
                "finish_reason": finish, "logprobs": None}

    def piece(self, text, finish):
        return self.delta({"content": text} if text else {}, finish)

    def opening(self):
        return [self.delta({"role": "assistant", "content": ""}, None)]

    def delta(self, delta, finish):
        return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


class Reading:
    """What comes of one request, cut at the client's stop texts, in one of the two forms."""

    def __init__(self, request, stops, form, words):
        self.request, self.stops, self.form = request, stops, form
        self.wants_usage = bool((words.get("stream_options") or {}).get("include_usage"))
        self.finish, self.num_read = None, 0

    async def first(self):
        """The news of the first token, or why there is none."""
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
                text, self.num_read = text + news, self.num_read + 1
                cuts = [at for at in (text.find(stop) for stop in self.stops) if at >= 0]
                sure = min(cuts) if cuts else len(text) - hold
                if sure > told:
                    yield text[told:sure]
                    told = sure
                if cuts:
                    self.finish = "stop"
                    return
                news = await self.request.news.get()
            if isinstance(news, Refused):
                raise news
            self.finish = news.finish
            if len(text) > told:
                yield text[told:]
        finally:  # also when the client went away; of one that is finished nobody is told
            self.request.is_cancelled = True

    def usage(self):
        """Of tokens that were read: behind a stop text the engine may have gone on."""
        sequence, prompt = self.request.sequence, len(self.request.tokens)
        new = min(self.num_read, len(sequence.new))
        return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new,
                "prompt_tokens_details": {"cached_tokens": sequence.cached}}

    async def whole(self):
        text = "".join([piece async for piece in self.pieces(await self.first())])
        return self.form.whole(text, self.finish, self.usage())

    async def stream(self, news):
        form = self.form
        try:
            for choice in form.opening():
                yield event(form.part([choice]))
            async for piece in self.pieces(news):
                yield event(form.part([form.piece(piece, None)]))
            yield event(form.part([form.piece("", self.finish)]))
            if self.wants_usage:
                yield event(form.part([], self.usage()))
        except Refused as error:  # too late for a status
            yield event(error.body())
        yield "data: [DONE]\n\n"


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


ROLES = {role: role for role in ("system", "user", "assistant")} | {"developer": "system"}


# What changes the answer and cannot be had here, and the one value that asks for nothing. Null does too.
NEUTRAL = {"n": 1, "best_of": 1, "echo": False, "suffix": "", "logprobs": False, "top_logprobs": 0,
           "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1,
           "tools": [], "functions": [], "response_format": {"type": "text"}}


def is_like(value, neutral):
    """Whether it asks for nothing; a number is no truth value."""
    same_kind = isinstance(value, bool) == isinstance(neutral, bool)
    return value is None or same_kind and value == neutral


def stop_texts(words):
    stops = words.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    if not (isinstance(stops, list) and all(isinstance(stop, str) and stop for stop in stops)):
        raise Refused(400, "stop: wanted a text, or a list of texts, not empty")
    return stops


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


def main(arguments):
    model = load_or_make(arguments.model)
    cache = cache_of(model, arguments)
    listening = socket.create_server(("127.0.0.1", arguments.port))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/v1 answers as {model.name}", flush=True)
    config = uvicorn.Config(Server(Engine(model, cache)).app, log_level="warning",
                            timeout_graceful_shutdown=2)  # for streams that are under way
    uvicorn.Server(config).run(sockets=[listening])
