"""A kvpoold of our own for each test module, from the build directory."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kvpool
import pytest

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests")]

from engine import daemon as engines  # noqa: E402

TOKEN = "token-of-tenant-you"


class Daemon(engines.Daemon):
    """A kvpoold with two tenants, me (by user id) and you (by TOKEN)."""

    def __init__(self, **settings: object) -> None:
        wanted = {"pool_bytes": "64MiB", "drain": "200ms", "keep": "none", **settings}
        super().__init__(["you"], me="me", **wanted)

    def pool(self, tenant: str = "me", **options: Any) -> kvpool.Pool:
        return super().pool(**{"token": "" if tenant == "me" else TOKEN, **options})


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
