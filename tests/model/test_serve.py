"""The OpenAI-style server, driven by OpenAI's own client; several servers over one daemon."""

import concurrent.futures
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

openai = pytest.importorskip("openai")

from engine.dense import LocalCache  # noqa: E402
from engine.daemon import Daemon  # noqa: E402
from engine.engine import Engine  # noqa: E402

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
    engine = Engine(model, LocalCache(model))
    sequence = engine.add(tokens, count)
    engine.run(sequence)
    shown = sequence.new[:-1] if sequence.finish == "stop" else sequence.new
    return model.tokeniser.decode(shown), sequence.finish


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


def test_a_stop_text_is_cut_off(clients):
    whole = clients[0].completions.create(model="any", prompt="Stop", max_tokens=20)
    text = whole.choices[0].text
    stop = text[5:7]
    cut = clients[0].completions.create(model="any", prompt="Stop", max_tokens=20, stop=[stop])
    assert cut.choices[0].text == text[:text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_a_client_that_leaves_frees_the_engine(clients, daemon):
    stream = clients[0].completions.create(model="any", prompt="x", max_tokens=8000, stream=True)
    next(iter(stream))
    stream.close()
    clients[0].completions.create(model="any", prompt="y", max_tokens=2)
    with daemon.operator() as operator:
        for _ in range(200):
            if operator.status()["sequences"] == 0:
                return
            clients[0].completions.create(model="any", prompt="y", max_tokens=2)
    pytest.fail("the sequence of a client that left is still there")


@pytest.mark.parametrize("words", [
    {"prompt": ""}, {"prompt": [10 ** 9]}, {"prompt": "x", "max_tokens": 0},
    {"prompt": "x", "max_tokens": 9000}, {"prompt": "x", "n": 2}, {"prompt": ["x", "y"]}])
def test_bad_requests(clients, words):
    with pytest.raises(openai.BadRequestError) as caught:
        clients[0].completions.create(model="any", **words)
    assert caught.value.body["message"]


def test_bad_messages(clients):
    with pytest.raises(openai.BadRequestError):
        clients[0].chat.completions.create(model="any", messages=[{"role": "king", "content": "x"}])


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
