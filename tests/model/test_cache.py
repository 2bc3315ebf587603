"""The daemon's cache by itself: what is found by whom, and what is said when it cannot be."""

import numpy as np
import pytest

from engine import tiny
from engine.cache import DaemonCache, Gone, NoRoom, staging_bytes
from engine.daemon import Daemon
from engine.dense import LocalCache


@pytest.fixture(scope="module")
def daemon():
    with Daemon(("chat", "stranger")) as daemon:
        yield daemon


@pytest.fixture
def pool(daemon):
    with daemon.pool(staging_bytes=staging_bytes(tiny.make())) as pool:
        yield pool


def fill(model, cache, sequence, tokens):
    done = cache.open(sequence, tokens)
    with cache.stepping([(sequence, tokens[done:])]) as attend:
        logits = model.forward(np.array(tokens[done:]), np.arange(done, len(tokens)), attend)
    return done, logits


@pytest.mark.parametrize("seed", (1, 2))
def test_what_one_computed_another_finds(daemon, pool, seed):
    model = tiny.make(seed=seed)
    cache, tokens = DaemonCache(model, pool), list(range(3, 53))
    dense = fill(model, LocalCache(model), 1, tokens)[1]
    assert cache.match(tokens) == 0
    done, logits = fill(model, cache, 1, tokens)
    assert done == 0 and np.abs(logits - dense).max() < 1e-3
    with daemon.pool() as pool:
        other = DaemonCache(model, pool)
        assert other.match(tokens) == 48
        done, logits = fill(model, other, 1, tokens)
    assert done == 48 and np.abs(logits - dense[48:]).max() < 1e-3


def test_other_weights_salts_types_and_tenants_find_nothing(daemon, pool):
    model, tokens = tiny.make(seed=3), list(range(3, 53))
    fill(model, DaemonCache(model, pool), 1, tokens)
    assert DaemonCache(model, pool).match(tokens) == 48
    assert DaemonCache(tiny.make(seed=4), pool).match(tokens) == 0
    assert DaemonCache(model, pool, salt=b"x").match(tokens) == 0
    assert DaemonCache(model, pool, "f16").match(tokens) == 0
    with daemon.pool("stranger") as stranger:
        assert DaemonCache(model, stranger).match(tokens) == 0


def test_an_unfinished_pass_changes_nothing(pool):
    model, tokens = tiny.make(seed=5), list(range(3, 53))
    cache = DaemonCache(model, pool)
    cache.open(1, tokens)
    with pytest.raises(ZeroDivisionError):
        with cache.stepping([(1, tokens[:20])]):
            1 / 0
    with cache.stepping([(1, tokens)]) as attend:
        model.forward(np.array(tokens), np.arange(50), attend)
    assert cache.match(tokens) == 48


def test_what_another_computes_just_now_is_arriving(daemon, pool):
    model, tokens = tiny.make(seed=6), list(range(3, 53))
    cache = DaemonCache(model, pool)
    cache.open(1, tokens)
    with daemon.pool() as pool:
        other = DaemonCache(model, pool)
        assert other.is_arriving(tokens, False)
        with cache.stepping([(1, tokens)]) as attend:
            model.forward(np.array(tokens), np.arange(50), attend)
        assert not other.is_arriving(tokens, False)
        assert other.open(1, tokens) == 48


def test_no_room_and_gone():
    model, tokens = tiny.make(), list(range(3, 53))
    with Daemon(pool_bytes="1MiB") as daemon, daemon.pool() as pool:
        cache = DaemonCache(model, pool)
        with pytest.raises(NoRoom):
            cache.open(1, [3] * 4000)
        daemon.stop(9)
        with pytest.raises(Gone):
            cache.open(1, tokens)
        daemon.start()
        cache.reconnect()
        assert fill(model, cache, 1, tokens)[0] == 0
