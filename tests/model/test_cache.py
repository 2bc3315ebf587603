"""Both caches by themselves: dense attention against the formula, the daemon's against the dense."""

import numpy as np
import pytest

from engine import tiny
from engine.cache import (DaemonCache, Gone, LocalCache, NoRoom, attend_dense, round_to,
                          staging_bytes)
from engine.daemon import Daemon


def formula(q, k, v, window):
    """Attention as it is written, one row and one head at a time, in double precision."""
    rows, heads, dim = q.shape
    length, group = k.shape[1], heads // k.shape[0]
    out = np.empty_like(q)
    for row in range(rows):
        last = length - rows + row
        first = max(0, last - window + 1) if window else 0
        for head in range(heads):
            keys, values = k[head // group, first:last + 1], v[head // group, first:last + 1]
            weights = np.exp(keys @ q[row, head] / np.sqrt(dim))
            out[row, head] = weights @ values / weights.sum()
    return out


@pytest.mark.parametrize("rows, length, window", [
    (1, 1, 0), (1, 9, 0), (5, 5, 0), (4, 20, 0), (1, 9, 3), (5, 5, 2), (7, 30, 8), (30, 30, 8),
    (1, 9, 9), (1, 9, 1), (3, 9, 100)])
def test_dense_attention(rows, length, window):
    rng = np.random.default_rng(rows * length + window)
    q = rng.standard_normal((rows, 6, 8))
    k, v = rng.standard_normal((2, 3, length, 8))
    assert np.allclose(attend_dense(q, k, v, window), formula(q, k, v, window), atol=1e-12)


def test_bf16_rounds_to_even():
    # 1 + 2**-8 lies between 1 and 1 + 2**-7; 1 + 3 * 2**-8 between 1 + 2**-7 and 1 + 2**-6.
    values = np.array([1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -8 + 2 ** -20, -3], np.float32)
    assert round_to(values, "bf16").tolist() == [1, 1 + 2 ** -6, 1 + 2 ** -7, -3]


def test_f16_rounds():
    values = np.array([1 + 2 ** -11, 1 + 3 * 2 ** -11], np.float32)
    assert round_to(values, "f16").tolist() == [1, 1 + 2 ** -9]
    assert round_to(values, "f32") is values


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
