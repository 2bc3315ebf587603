"""A kvpoold of our own for each test module, from the build directory."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import kvpool
import pytest

sys.path.insert(0, str(Path(__file__).parent))
ROOT = Path(__file__).parents[3]
TOKEN = "token-of-another-tenant"


def build_folder() -> Path:
    """$KVPOOLD_BUILD, or build/ of this repository."""
    folder = Path(os.environ.get("KVPOOLD_BUILD") or ROOT / "build")
    if not (folder / "daemon" / "kvpoold").exists():
        raise RuntimeError(f"no kvpoold in {folder}: build it, or set KVPOOLD_BUILD")
    os.environ.setdefault("KVPOOL_LIBRARY", str(folder / "client-lib" / "libkvpool.so"))
    return folder


def _die_with_parent() -> None:
    """Whatever ends a test (the thread that starts it) ends its daemon: PR_SET_PDEATHSIG."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Daemon:
    """A kvpoold with two tenants, me (by user id) and you (by TOKEN), in a folder of its own."""

    def __init__(self, **settings: object) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kvpool-py-"))
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text(TOKEN + "\n")
        config = {
            "run-directory": str(self.run),
            "state-directory": str(self.folder / "state"),
            "pool-bytes": "64MiB",
            "page-bytes": "64KiB",
            "watermark-pages": 0,
            "http": False,
            "drain": "200ms",
            "keep": "none",
            "tenants": [
                {"name": "me", "uids": [os.getuid()]},
                {"name": "you", "token-file": str(token)},
            ],
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        self.config = self.folder / "kvpoold.yaml"
        self.config.write_text(json.dumps(config))  # JSON is YAML
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.finish()
            raise

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [build_folder() / "daemon" / "kvpoold", "--config", self.config],
                stderr=log,
                preexec_fn=_die_with_parent,
                env={**os.environ, "MALLOC_PERTURB_": "0"},
            )
        until = time.monotonic() + 60
        while True:
            try:
                with self.operator(connect_timeout=0.5) as operator:
                    operator.status()
                return
            except kvpool.Disconnected:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError((self.folder / "log").read_text()) from None

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process
        self.process.send_signal(number)
        status = self.process.wait(30)
        self.process = None
        return status

    def finish(self) -> None:
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder)

    def pool(self, **options: object) -> kvpool.Pool:
        return kvpool.Pool(**{"directory": self.run, **options})  # type: ignore[arg-type]

    def operator(self, **options: object) -> kvpool.Operator:
        return kvpool.Operator(**{"directory": self.run, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Shared by the tests of a module."""
    daemon = Daemon()
    yield daemon
    daemon.finish()


@pytest.fixture
def own_daemon() -> Iterator[Daemon]:
    """For a test that stops it."""
    daemon = Daemon()
    yield daemon
    daemon.finish()


@pytest.fixture
def pool(daemon: Daemon) -> Iterator[kvpool.Pool]:
    with daemon.pool() as pool:
        yield pool


@pytest.fixture
def model() -> kvpool.Model:
    """A model that no other test has: nothing of it is cached."""
    return toy_model()


def toy_model(**changes: object) -> kvpool.Model:
    words = {
        "name": "toy",
        "weights_revision": secrets.token_hex(8),
        "num_layers": 2,
        "num_q_heads": 4,
        "num_kv_heads": 2,
        "k_head_dim": 16,
        "v_head_dim": 16,
        **changes,
    }
    return kvpool.Model(**words)  # type: ignore[arg-type]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--examples", type=int, default=300, help="of the state machine")
