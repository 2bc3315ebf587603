"""What a client of OpenAI's API says and is told: its words are checked, its answers have two forms.

What would change the answer and cannot be had here (NEUTRAL) is refused. serve.py has the engine.
"""

import json
import time
import uuid


class Refused(Exception):
    """@status and a message for the client."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status

    def body(self):
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": None, "code": None}}


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


# What changes the answer and cannot be had here, and the one value that asks for nothing. Null does too.
NEUTRAL = {"n": 1, "best_of": 1, "echo": False, "suffix": "", "logprobs": False, "top_logprobs": 0,
           "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1,
           "tools": [], "functions": [], "response_format": {"type": "text"}}
ROLES = {role: role for role in ("system", "user", "assistant")} | {"developer": "system"}


def checked(words):
    """A request's body, if it asks for nothing that cannot be had."""
    if not isinstance(words, dict):
        raise Refused(400, "the body is no JSON object")
    for key, neutral in NEUTRAL.items():
        if not is_like(words.get(key), neutral):
            raise Refused(400, f"{key}: not supported (only {json.dumps(neutral)} is accepted)")
    if not isinstance(words.get("stream_options") or {}, dict):
        raise Refused(400, "stream_options: wanted an object")
    return words


def is_like(value, neutral):
    """Whether it asks for nothing; a number is no truth value."""
    same_kind = isinstance(value, bool) == isinstance(neutral, bool)
    return value is None or same_kind and value == neutral


def turns_of(words):
    """The turns of a chat, as a tokeniser wants them."""
    turns = words.get("messages")
    if not (isinstance(turns, list) and turns and all(map(is_turn, turns))):
        raise Refused(400, "messages: wanted turns of role (system, user, assistant) and content, a text")
    return [{"role": ROLES[turn["role"]], "content": text_of(turn["content"])} for turn in turns]


def stop_texts(words):
    stops = words.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    if not (isinstance(stops, list) and all(isinstance(stop, str) and stop for stop in stops)):
        raise Refused(400, "stop: wanted a text, or a list of texts, not empty")
    return stops


def given(words, *keys):
    """What the first of the keys says that is there, and not null; else None."""
    return next((words[key] for key in keys if words.get(key) is not None), None)


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
