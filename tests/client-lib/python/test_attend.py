"""Steps and attends against dense attention in float64, by rings and by messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dense
import kvpool
import numpy as np
import pytest
from conftest import Daemon, toy_model
from numpy.typing import NDArray


@pytest.fixture(params=["rings", "messages"])
def pool(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[kvpool.Pool]:
    with daemon.pool(rings=request.param == "rings", staging_bytes=1 << 20) as pool:
        if pool.uses_rings != (request.param == "rings"):
            pytest.skip("libkvpool was not found")
        yield pool


def draw(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def begin(
    pool: kvpool.Pool, model: kvpool.Model, num_tokens: int, sequence: int = 1
) -> kvpool.Step:
    pool.register_model(model)
    tokens = range(num_tokens)
    pool.allocate(sequence, kvpool.Prompt(model, list(tokens)), unfilled=True)
    return pool.step(model, {sequence: list(tokens)})


def one_layer(**changes: object) -> kvpool.Model:
    return toy_model(num_layers=1, **changes)


@pytest.mark.parametrize(
    ("dtype", "to", "back", "error"),
    [
        (np.float32, lambda a: a, lambda a: a, 2e-6),
        (np.float16, lambda a: a.astype(np.float16), lambda a: a.astype(np.float32), 1e-3),
        (np.uint16, kvpool.bf16_from_f32, kvpool.f32_from_bf16, 8e-3),
    ],
)
def test_every_dtype(pool: kvpool.Pool, dtype: Any, to: Any, back: Any, error: float) -> None:
    """What comes back has that dtype; K and V are kept in the model's."""
    code = {np.float32: kvpool.F32, np.float16: kvpool.F16, np.uint16: kvpool.BF16}[dtype]
    q, k, v = (to(draw(i, 40, heads, 16)) for i, heads in enumerate((4, 2, 2)))
    step = begin(pool, one_layer(dtype=code), 40)
    out = pool.attend(step, 0, q, k, v)
    assert out.dtype == dtype and out.shape == (40, 4, 16)
    wanted, _ = dense.attention(back(q), back(k), back(v), 0)
    np.testing.assert_allclose(back(out), wanted, rtol=0, atol=error)


@pytest.mark.parametrize(
    "options",
    [{}, {"scale": 0.5}, {"soft_cap": 0.7}, {"sinks": draw(9, 4)}, {"scale": 2.0, "soft_cap": 3.0}],
)
def test_factors_and_lse(pool: kvpool.Pool, options: Any) -> None:
    q, k, v = draw(1, 33, 4, 16), draw(2, 33, 2, 16), draw(3, 33, 2, 16)
    step = begin(pool, one_layer(), 33)
    out, lse = pool.attend_lse(step, 0, q, k, v, **options)
    wanted, wanted_lse = dense.attention(q, k, v, 0, **options)
    np.testing.assert_allclose(out, wanted, rtol=0, atol=2e-6)
    np.testing.assert_allclose(lse, wanted_lse, rtol=0, atol=2e-6)


def test_a_window(pool: kvpool.Pool) -> None:
    q, k, v = draw(1, 50, 4, 16), draw(2, 50, 2, 16), draw(3, 50, 2, 16)
    step = begin(pool, one_layer(groups=(kvpool.LayerGroup((0,), 17),)), 50)
    out = pool.attend(step, 0, q, k, v)
    np.testing.assert_allclose(out, dense.attention(q, k, v, 0, window=17)[0], rtol=0, atol=2e-6)


def test_mla_has_no_v(pool: kvpool.Pool) -> None:
    model = one_layer(num_kv_heads=1, k_head_dim=32, v_head_dim=0, mla_v_dim=16)
    q, k = draw(1, 20, 4, 32), draw(2, 20, 1, 32)
    step = begin(pool, model, 20)
    out = pool.attend(step, 0, q, k)
    wanted, _ = dense.attention(q, k, k[:, :, :16], 0)
    np.testing.assert_allclose(out, wanted, rtol=0, atol=2e-6)
    with pytest.raises(ValueError, match="MLA"):
        pool.attend(step, 0, q, k, k)


def test_rows_are_in_the_order_of_the_step(pool: kvpool.Pool) -> None:
    """A prefill chunk, a decode step and a second chunk of one pass."""
    model = one_layer()
    pool.register_model(model)
    texts = {7: list(range(30)), 3: list(range(100, 120)), 5: list(range(200, 260))}
    values = {s: [draw(s * 10 + i, len(t), h, 16) for i, h in enumerate((4, 2, 2))] for s, t in texts.items()}  # fmt: skip
    for sequence, text in texts.items():
        pool.allocate(sequence, kvpool.Prompt(model, text), unfilled=True)
    done = dict.fromkeys(texts, 0)
    for chunks in ({7: 29, 5: 16}, {5: 44, 7: 1, 3: 20}):
        rows = {s: texts[s][done[s] : done[s] + n] for s, n in chunks.items()}
        step = pool.step(model, rows)
        assert step.num_rows == sum(chunks.values())
        new = [[values[s][i][done[s] : done[s] + n] for s, n in chunks.items()] for i in range(3)]
        out = pool.attend(step, 0, *(np.concatenate(part) for part in new))
        at = 0
        for sequence, n in chunks.items():
            q, k, v = (array[: done[sequence] + n] for array in values[sequence])
            wanted, _ = dense.attention(q[done[sequence] :], k, v, done[sequence])
            np.testing.assert_allclose(out[at : at + n], wanted, rtol=0, atol=2e-6)
            done[sequence] += n
            at += n


def test_arrays_in_staging_are_not_copied(pool: kvpool.Pool) -> None:
    model = one_layer(v_head_dim=16)
    step = begin(pool, model, 8)
    q, k, v = (pool.staging.take((8, heads, 16)) for heads in (4, 2, 2))
    for i, array in enumerate((q, k, v)):
        array[...] = draw(i, *array.shape)
    kept = q.copy()
    free = pool.staging.num_free()
    out = pool.attend(step, 0, q, k, v, out=q)
    assert out is q and pool.staging.num_free() == free
    np.testing.assert_allclose(out, dense.attention(kept, k, v, 0)[0], rtol=0, atol=2e-6)


def test_outputs_stay_as_long_as_somebody_has_them(pool: kvpool.Pool) -> None:
    model = one_layer()
    step = begin(pool, model, 4)
    first = pool.attend(step, 0, draw(1, 4, 4, 16), draw(2, 4, 2, 16), draw(3, 4, 2, 16))
    kept = first.copy()
    for token in range(200):
        step = pool.step(model, {1: [token]})
        pool.attend(step, 0, draw(4, 1, 4, 16), draw(5, 1, 2, 16), draw(6, 1, 2, 16))
    assert np.array_equal(first, kept)
    del first
    assert pool.staging.num_free() == pool.staging.num_bytes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": draw(1, 3, 4, 16)}, r"q: shape \(3, 4, 16\), wanted \(4, 4, 16\)"),
        ({"k": draw(1, 4, 4, 16)}, "k: shape"),
        ({"v": draw(1, 4, 2, 8)}, "v: shape"),
        ({"v": None}, "MLA"),
        ({"k": draw(1, 4, 2, 16).astype(np.float16)}, "k: float16, wanted float32"),
        ({"q": draw(1, 4, 4, 16).astype(np.float64)}, "float64"),
        ({"out": np.zeros((4, 4, 16), np.float32)}, "out: a whole array of staging"),
        ({"sinks": draw(1, 3)}, "sinks: shape"),
    ],
)
def test_wrong_tensors_are_refused_before_anything_is_sent(
    pool: kvpool.Pool, change: dict[str, Any], words: str
) -> None:
    step = begin(pool, one_layer(), 4)
    tensors: dict[str, Any] = {
        "q": draw(1, 4, 4, 16),
        "k": draw(2, 4, 2, 16),
        "v": draw(3, 4, 2, 16),
    }
    with pytest.raises(ValueError, match=words):
        pool.attend(step, 0, **{**tensors, **change})
    assert step.missing == {0}
    pool.attend(step, 0, **tensors)


def test_a_step_commits_with_its_last_layer(pool: kvpool.Pool) -> None:
    model = toy_model()
    step = begin(pool, model, 20)
    tensors = draw(1, 20, 4, 16), draw(2, 20, 2, 16), draw(3, 20, 2, 16)
    pool.attend(step, 1, *tensors)
    assert step.missing == {0} and not step.is_ended
    assert pool.match(kvpool.Prompt(model, list(range(20)))).matched == 0
    pool.attend(step, 1, *tensors)  # may be repeated
    pool.attend(step, 0, *tensors)
    assert step.is_ended
    assert pool.match(kvpool.Prompt(model, list(range(20)))).matched == 16
    with pytest.raises(kvpool.NotFound):
        pool.attend(step, 0, *tensors)


def test_stepping_abandons_on_an_exception(pool: kvpool.Pool) -> None:
    model = toy_model()
    pool.register_model(model)
    pool.allocate(1, kvpool.Prompt(model, [1]), unfilled=True)
    with pytest.raises(RuntimeError), pool.stepping(model, {1: [1]}):
        raise RuntimeError
    with pytest.raises(kvpool.Invalid), pool.stepping(model, {1: [1]}):
        pass  # layers are missing
    with pool.stepping(model, [(1, [1])]) as step:  # it is in no step any more
        for layer in range(2):
            pool.attend(step, layer, draw(1, 1, 4, 16), draw(2, 1, 2, 16), draw(3, 1, 2, 16))
    pool.release(1)


def test_a_step_too_large_for_staging_goes_by_message(pool: kvpool.Pool) -> None:
    model = one_layer()
    pool.register_model(model)
    tokens = list(range(4000))
    pool.allocate(1, kvpool.Prompt(model, tokens), unfilled=True)
    full = pool.staging.take(pool.staging.num_free() - 64, np.uint8)
    step = pool.step(model, {1: tokens})
    assert step.num_rows == 4000
    with pytest.raises(MemoryError, match="staging_bytes"):
        pool.attend(step, 0, *(np.zeros((4000, h, 16), np.float32) for h in (4, 2, 2)))
    pool.end_step(step, abandon=True)
    del full
    assert pool.staging.num_free() == pool.staging.num_bytes
