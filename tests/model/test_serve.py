"""The OpenAI-style server, driven by OpenAI's own client; several servers over one daemon."""

import asyncio
import concurrent.futures
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import kvpool
import pytest

openai = pytest.importorskip("openai")

from engine.dense import LocalCache  # noqa: E402
from engine.daemon import Daemon  # noqa: E402
from engine.engine import Engine  # noqa: E402
from engine.serve import EngineThread, Server  # noqa: E402

TESTS = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def serving(daemon, model, *more):
    """A client of a server process."""
    child = subprocess.Popen(
        [sys.executable, "-m", "engine", "serve", "--port", "0", "--model", model, "--dir",
         str(daemon.run), "--token", daemon.token_of("chat"), *more],
        cwd=TESTS, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(TESTS)})
    try:
        address = child.stdout.readline().split()[0]
        with openai.OpenAI(base_url=address, api_key="none", max_retries=0, timeout=120) as client:
            yield client
    finally:
        child.terminate()
        child.wait()


@pytest.fixture(scope="module")
def daemon():
    with Daemon() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def clients(daemon):
    """Of two servers of one tenant."""
    with serving(daemon, "tiny-llama") as one, serving(daemon, "tiny-llama") as two:
        yield one, two


@pytest.fixture(scope="module")
def tiny(models):
    return models("tiny-llama")


def dense(model, tokens, count):
    new, finish = dense_tokens(model, tokens, count)
    return model.tokeniser.decode(new[:-1] if finish == "stop" else new), finish


def dense_tokens(model, tokens, count, stops=None):
    engine = Engine(model, LocalCache(model))
    sequence = engine.add(tokens, count, stops)
    engine.run(sequence)
    return sequence.new, sequence.finish


def test_models(clients):
    assert [model.id for model in clients[0].models.list()] == ["tiny-llama"]


def test_a_completion_is_what_the_dense_cache_says(clients, tiny):
    done = clients[0].completions.create(model="any", prompt="The harbour", max_tokens=12)
    text, finish = dense(tiny, tiny.tokeniser.text("The harbour"), 12)
    assert (done.choices[0].text, done.choices[0].finish_reason) == (text, finish)
    assert done.usage.prompt_tokens == len(tiny.tokeniser.text("The harbour"))
    assert done.usage.completion_tokens == 12


def test_another_server_finds_what_the_first_computed(clients, tiny):
    one, two = clients
    prompt = "a ship with cargo of bells " * 8
    first = one.completions.create(model="any", prompt=prompt, max_tokens=4)
    second = two.completions.create(model="any", prompt=prompt, max_tokens=4)
    assert first.choices[0].text == second.choices[0].text
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    whole_blocks = (len(tiny.tokeniser.text(prompt)) - 1) // 16 * 16
    assert second.usage.prompt_tokens_details.cached_tokens == whole_blocks


def test_a_stream_says_the_same_in_pieces(clients, tiny):
    messages = [{"role": "user", "content": "Which ships are there?"}]
    whole = clients[0].chat.completions.create(model="any", messages=messages, max_tokens=20)
    stream = clients[1].chat.completions.create(model="any", messages=messages, max_tokens=20,
                                                stream=True, stream_options={"include_usage": True})
    parts = list(stream)
    assert (parts[0].choices[0].delta.role, parts[0].choices[0].delta.content) == ("assistant", "")
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == whole.choices[0].message.content == dense(
        tiny, tiny.tokeniser.chat(messages), 20)[0]
    assert parts[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_many_at_once(clients, tiny):
    prompts = [f"{number} bells " * (1 + number) for number in range(16)]

    def ask(number):
        client = clients[number % 2]
        return client.completions.create(model="any", prompt=prompts[number], max_tokens=10)
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, range(16)))
    for prompt, answer in zip(prompts, answers):
        assert answer.choices[0].text == dense(tiny, tiny.tokeniser.text(prompt), 10)[0]


def test_a_stop_text_is_cut_off(clients, tiny):
    tokens = dense_tokens(tiny, tiny.tokeniser.text("Stop"), 20)[0]
    text = tiny.tokeniser.decode(tokens)
    stop = text[5:7]
    count = next(n for n in range(20) if stop in tiny.tokeniser.decode(tokens[:n]))
    for words in ({"max_tokens": 20}, {"max_tokens": 2000}):  # what the engine is ahead is not told
        cut = clients[0].completions.create(model="any", prompt="Stop", stop=["never", stop], **words)
        assert cut.choices[0].text == text[:text.index(stop)]
        assert cut.choices[0].finish_reason == "stop"
        assert cut.usage.completion_tokens == count


def test_prompts_of_tokens_and_lists_of_one(clients, tiny):
    tokens = tiny.tokeniser.text("A bell")
    said = [clients[0].completions.create(model="any", prompt=prompt, max_tokens=5).choices[0].text
            for prompt in ("A bell", tokens, ["A bell"], [tokens])]
    assert said == [dense(tiny, tokens, 5)[0]] * 4


def test_a_model_may_be_kept_from_stopping(clients, tiny):
    """ignore_eos, which load generators send."""
    prompt = next(text for text in map(str, range(1000))
                  if dense(tiny, tiny.tokeniser.text(text), 12)[1] == "stop")
    stopped = clients[0].completions.create(model="any", prompt=prompt, max_tokens=12)
    assert stopped.choices[0].finish_reason == "stop" and stopped.usage.completion_tokens < 12
    done = clients[0].completions.create(model="any", prompt=prompt, max_tokens=12,
                                         extra_body={"ignore_eos": True})
    assert done.choices[0].finish_reason == "length" and done.usage.completion_tokens == 12


def test_without_a_limit_there_is_one(clients, tiny):
    done = clients[0].completions.create(model="any", prompt=[5] * (tiny.max_tokens - 3),
                                         extra_body={"ignore_eos": True})
    assert done.usage.completion_tokens == 3 and done.choices[0].finish_reason == "length"
    done = clients[0].completions.create(model="any", prompt="x", extra_body={"ignore_eos": True})
    assert done.usage.completion_tokens == 16


def sequences(daemon):
    with daemon.operator() as operator:
        return operator.status()["sequences"]


def until_no_sequence_is_left(daemon):
    until = time.monotonic() + 10
    while sequences(daemon):
        assert time.monotonic() < until, "the sequence of a client that left is still there"
        time.sleep(0.05)


def test_a_client_that_leaves_a_stream_frees_the_engine(clients, daemon):
    stream = clients[0].completions.create(model="any", prompt="x", max_tokens=8000, stream=True)
    next(iter(stream))
    assert sequences(daemon) == 1
    stream.close()
    until_no_sequence_is_left(daemon)


def test_a_client_that_leaves_before_its_answer_frees_the_engine(clients, daemon):
    body = b'{"prompt": "x", "max_tokens": 8000, "ignore_eos": true}'
    url = clients[0].base_url
    with socket.create_connection((url.host, url.port)) as link:
        link.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" %
                     (len(body), body))
        until = time.monotonic() + 10
        while sequences(daemon) == 0:
            assert time.monotonic() < until
    until_no_sequence_is_left(daemon)


@pytest.mark.parametrize("words, wrong", [
    ({"prompt": ""}, "prompt"), ({"prompt": [10 ** 9]}, "prompt"), ({"prompt": ["x", "y"]}, "prompt"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 9000}, "8192"),
    ({"prompt": [5] * 8192}, "8192"), ({"n": 2}, "n: not supported (only 1 is accepted)"), ({"best_of": 2}, "best_of"),
    ({"logprobs": 0}, "logprobs"), ({"echo": True}, "echo"), ({"presence_penalty": 1}, "presence"),
    ({"stop": [""]}, "stop"), ({"stop": [5]}, "stop"), ({"stop": {"a": 1}}, "stop"),
    ({"stream": True, "stream_options": "x"}, "stream_options")])
def test_bad_requests(clients, words, wrong):
    with pytest.raises(openai.BadRequestError) as caught:
        clients[0].completions.create(**{"model": "any", "prompt": "x"} | words)
    assert wrong in caught.value.body["message"]
    assert caught.value.body["type"] == "invalid_request_error"


@pytest.mark.parametrize("path, body", [
    ("completions", b""), ("completions", b"[1]"), ("completions", b"{\xff}"), ("completions", b"[" * 100_000),
    ("completions", b'{"prompt": "\\ud800"}'),
    ("chat/completions", b'{"messages": [{"role": "user", "content": "\\udc00"}]}')])
def test_bodies_that_are_none(clients, path, body):
    url = clients[0].base_url
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://{url.host}:{url.port}/v1/{path}", body)
    assert caught.value.code == 400 and b"JSON" in caught.value.read()


def test_what_asks_for_nothing_is_taken(clients):
    plain = clients[0].completions.create(model="any", prompt="x", max_tokens=3)
    words = {"n": 1, "best_of": 1, "echo": False, "logprobs": None, "presence_penalty": 0.0,
             "temperature": 1.5, "top_p": 0.5, "seed": 3, "user": "me",
             "extra_body": {"repetition_penalty": 1.0, "top_k": 5}}
    assert clients[0].completions.create(model="any", prompt="x", max_tokens=3,
                                         **words).choices == plain.choices


def test_health(clients):
    url = clients[0].base_url
    with urllib.request.urlopen(f"http://{url.host}:{url.port}/health") as answer:
        assert answer.status == 200


def test_without_its_engine_it_is_not_healthy():
    server = object.__new__(Server)
    server.thread = threading.Thread()  # never started
    assert asyncio.run(server.health(None)).status_code == 503


def test_all_are_told_before_anything_is_released():
    """A daemon that hangs lets each release wait for its timeout."""
    said, thread = [], object.__new__(EngineThread)
    thread.engine = SimpleNamespace(release=lambda sequence: said.append(("released", sequence)))
    thread.requests = {n: SimpleNamespace(sequence=n, tell=lambda news, n=n: said.append(
        (news.status, n))) for n in (1, 2)}
    thread._fail(kvpool.Timeout("no answer"))
    assert said == [(503, 1), (503, 2), ("released", 1), ("released", 2)]
    assert not thread.requests


def test_a_wrong_address_is_said_in_the_same_shape(clients):
    with pytest.raises(openai.NotFoundError) as caught:
        clients[0].embeddings.create(model="any", input="x")
    assert "/v1/embeddings" in caught.value.body["message"]


def test_bad_messages(clients):
    with pytest.raises(openai.BadRequestError):
        clients[0].chat.completions.create(model="any", messages=[{"role": "king", "content": "x"}])


def test_what_clients_send_as_well(clients):
    """A text in parts, a developer's turn, nulls: the same as without."""
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    others = [{"role": "developer", "content": [{"type": "text", "text": "Be "},
                                                {"type": "text", "text": "brief."}]}, turns[1]]
    one = clients[0].chat.completions.create(model="any", messages=turns, max_tokens=5)
    two = clients[0].chat.completions.create(model="any", messages=others, max_tokens=None, n=None,
                                             max_completion_tokens=5, stop=None)
    assert one.choices == two.choices and one.usage.prompt_tokens == two.usage.prompt_tokens
    image = [{"type": "image_url", "image_url": {"url": "data:"}}]
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    for words in ({"messages": [{"role": "user", "content": image}]}, {"max_tokens": 0},
                  {"tools": [tool]}, {"logprobs": True}, {"response_format": {"type": "json_object"}}):
        with pytest.raises(openai.BadRequestError):
            clients[0].chat.completions.create(**{"model": "any", "messages": turns} | words)


def test_without_a_daemon_clients_are_told():
    with Daemon() as daemon, serving(daemon, "tiny-llama") as client:
        left, stream = [client.completions.create(model="any", prompt=prompt, max_tokens=8000,
                                                  stream=True) for prompt in "xy"]
        parts = iter(stream)
        next(parts), next(iter(left))
        daemon.stop(9)
        left.close()  # while nobody can be told to let go of it
        with pytest.raises(openai.APIError, match="is kvpoold running"):  # in the middle of it
            list(parts)
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(model="any", prompt="y", max_tokens=2)
        assert caught.value.status_code == 503
        daemon.start()
        assert client.completions.create(model="any", prompt="x", max_tokens=2).choices


def test_a_stream_goes_on_over_a_restart_of_the_daemon(tiny):
    tokens, count = tiny.tokeniser.text("the tide comes in " * 5), 200
    with Daemon() as daemon, serving(daemon, "tiny-llama") as client:
        stream = client.completions.create(
            model="any", prompt=tokens, max_tokens=count, stream=True,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True})
        parts = [next(iter(stream))]
        daemon.stop(9)
        daemon.start()
        parts += stream
        text = "".join(part.choices[0].text for part in parts if part.choices)
        assert text == tiny.tokeniser.decode(dense_tokens(tiny, tokens, count, ())[0])
        assert parts[-1].usage.prompt_tokens_details.cached_tokens == 0  # it had computed that itself
        assert parts[-1].usage.completion_tokens == count


def test_a_request_that_is_refused_leaves_the_others_alone(tiny):
    with Daemon() as daemon, serving(daemon, "tiny-llama") as client:
        words = {"model": "any", "prompt": "The harbour", "max_tokens": 2000,
                 "extra_body": {"ignore_eos": True}}
        stream = iter(client.completions.create(stream=True, **words))
        parts = [next(stream)]
        with daemon.operator() as operator:
            operator.drain()
            with pytest.raises(openai.InternalServerError) as caught:
                client.completions.create(model="any", prompt="Another", max_tokens=2)
            assert caught.value.status_code == 503 and "Draining" in caught.value.body["message"]
            parts += stream
            operator.drain(undo=True)
        tokens = dense_tokens(tiny, tiny.tokeniser.text("The harbour"), 2000, ())[0]
        assert "".join(part.choices[0].text for part in parts) == tiny.tokeniser.decode(tokens)
        assert client.completions.create(model="any", prompt="Another", max_tokens=2).choices


def test_a_prompt_that_the_pool_cannot_hold():
    with Daemon(pool_bytes="1MiB") as small, serving(small, "tiny-llama") as client:
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(model="any", prompt="x" * 6000, max_tokens=2)
        assert caught.value.status_code == 503
        assert client.completions.create(model="any", prompt="x", max_tokens=2).choices


def test_a_restart_of_the_daemon_is_not_noticed(tiny):
    with Daemon() as daemon, serving(daemon, "tiny-llama") as client:
        prompt = "the tide comes in " * 5
        before = client.completions.create(model="any", prompt=prompt, max_tokens=8)
        daemon.stop(9)
        daemon.start()
        after = client.completions.create(model="any", prompt=prompt, max_tokens=8)
        assert after.choices[0].text == before.choices[0].text


def test_sliding_layers_too(daemon, models):
    tiny = models("tiny-gemma3")
    with serving(daemon, "tiny-gemma3", "--dtype", "f16") as client:
        messages = [{"role": "user", "content": "How high is it?"}]
        done = client.chat.completions.create(model="any", messages=messages, max_tokens=5)
        assert done.usage.prompt_tokens == len(tiny.tokeniser.chat(messages))
