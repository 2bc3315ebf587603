"""Every verb but those of steps, against a real daemon: what it answers, and what it refuses."""

from __future__ import annotations

import secrets
import signal
import threading
import time
from typing import Any

import kvpool
import numpy as np
import pytest
from conftest import TOKEN, Daemon, toy_model

TEXT = list(range(40))


def prompt(model: kvpool.Model, tokens: list[int] = TEXT, **words: Any) -> kvpool.Prompt:
    return kvpool.Prompt(model, tokens, **words)


def blocks_of(seed: int, num: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((num, 2048), np.float32)


def cache(pool: kvpool.Pool, model: kvpool.Model, sequence: int = 1, **words: Any) -> np.ndarray:
    """Two full blocks and a tail, written by hand and published."""
    pool.register_model(model)
    pool.allocate(sequence, prompt(model, **words), unfilled=True)
    blocks = blocks_of(1, 3)
    pool.write(sequence, blocks)
    assert pool.fill(sequence).length == 40
    pool.publish(sequence)
    return blocks


def test_registration_answers_the_shape(pool: kvpool.Pool) -> None:
    """K and V of 16 tokens, 2 layers, 2 heads of 16 values of 4 bytes: 8192 bytes."""
    shape = pool.register_model(toy_model())
    assert shape == kvpool.ModelShape((8192,), (8192,), (8,))
    groups = (kvpool.LayerGroup((0,)), kvpool.LayerGroup((1,), window=32))
    assert pool.register_model(toy_model(groups=groups)).block_bytes == (4096, 4096)
    with pytest.raises(kvpool.KvpoolError):
        pool.register_model(toy_model(name=""))


def test_a_model_has_to_be_registered_first(pool: kvpool.Pool, model: kvpool.Model) -> None:
    with pytest.raises(ValueError, match="register_model"):
        pool.match(prompt(model))


def test_blocks_come_back_as_they_were_written(pool: kvpool.Pool, model: kvpool.Model) -> None:
    blocks = cache(pool, model)
    got = pool.read(1, 3)
    assert got.shape == (3, 8192)
    assert got.tobytes() == blocks.tobytes()
    assert pool.read(1, 1, first_block=1).tobytes() == blocks[1].tobytes()
    out = pool.staging.take((2, 8192), np.uint8)
    into = pool.read(1, 2, out=out)
    assert into.tobytes() == blocks[:2].tobytes() == out.tobytes()
    assert np.shares_memory(into, out)
    with pytest.raises(ValueError, match="staging"):
        pool.read(1, 2, out=np.empty((2, 8192), np.uint8))


def test_blocks_written_from_staging(pool: kvpool.Pool, model: kvpool.Model) -> None:
    pool.register_model(model)
    pool.allocate(1, prompt(model), unfilled=True)
    blocks = pool.staging.take((3, 2048))
    blocks[...] = blocks_of(2, 3)
    pool.write(1, blocks)
    pool.write(1, blocks_of(3, 1), first_block=2)
    pool.fill(1)
    assert pool.read(1, 3)[:2].tobytes() == blocks[:2].tobytes()
    assert pool.read(1, 1, first_block=2).tobytes() == blocks_of(3, 1).tobytes()


def test_what_is_published_is_found(pool: kvpool.Pool, model: kvpool.Model) -> None:
    cache(pool, model)
    assert pool.match(prompt(model)) == kvpool.Matched(32, 0)
    assert pool.match(prompt(model, TEXT[:32])) == kvpool.Matched(16, 0)  # never the last token
    assert pool.match(prompt(model, TEXT[:32], raw=True)) == kvpool.Matched(32, 0)
    assert pool.prefetch(prompt(model)) == kvpool.Prefetched(32, 32, 0)  # all of it is there
    for other in (
        {"salt": b"x"},
        {"adapter": "a"},
        {"adapter": "a", "adapter_generation": 2},
        {"extras": [kvpool.Extra(0, b"image")]},
    ):
        assert pool.match(prompt(model, **other)).matched == 0
    assert pool.match(prompt(model, extras=[kvpool.Extra(1, b"image")])).matched == 16


def test_tables(pool: kvpool.Pool, model: kvpool.Model) -> None:
    pool.register_model(model)
    state = pool.allocate(1, prompt(model), table=True)
    assert (state.matched, state.arriving, state.length) == (0, 0, 40)
    (table,) = state.tables
    assert len(set(table.slots.tolist())) == 3 and table.slots.all() and table.num_shared == 0
    assert table.generations.shape == (3,)
    (child,) = pool.fork(1, 2, table=True).tables
    assert child.slots.tolist() == table.slots.tolist()
    (grown,) = pool.append(2, [7], table=True).tables
    assert grown.slots.tolist()[:2] == table.slots.tolist()[:2]
    assert grown.slots[2] != table.slots[2]  # the shared tail was copied
    assert pool.truncate(2, 32, table=True).tables[0].slots.tolist() == table.slots.tolist()[:2]


def test_take_is_so_many_tokens_beyond_the_match(pool: kvpool.Pool, model: kvpool.Model) -> None:
    cache(pool, model)
    assert pool.allocate(2, prompt(model), take=3).length == 35
    assert pool.allocate(3, prompt(model), take=0).length == 32


def test_extras_stay_with_the_sequence(pool: kvpool.Pool, model: kvpool.Model) -> None:
    pool.register_model(model)
    images = prompt(model, extras=[kvpool.Extra(0, b"image"), kvpool.Extra(1, b"other" * 40)])
    pool.allocate(1, images, take=5)
    pool.append(1, TEXT[5:])
    pool.truncate(1, 20)
    pool.append(1, TEXT[20:])
    pool.publish(1)
    assert pool.match(images).matched == 32
    assert pool.match(prompt(model, extras=images.extras[:1])).matched == 16


def test_preempted_and_resumed(pool: kvpool.Pool, model: kvpool.Model) -> None:
    cache(pool, model)
    pool.preempt(1)
    with pytest.raises(kvpool.Invalid):
        pool.append(1, [1])
    state = pool.resume(1, unfilled=True, table=True)
    assert (state.matched, state.length, len(state.tables[0].slots)) == (32, 40, 3)


def test_empty_is_preempted_but_not_resumed(pool: kvpool.Pool, model: kvpool.Model) -> None:
    pool.register_model(model)
    pool.allocate(1, prompt(model, [7]), unfilled=True, take=0)
    pool.preempt(1)
    with pytest.raises(kvpool.Invalid, match="no tokens to resume"):
        pool.resume(1, unfilled=True)
    pool.release(1)


def test_unfilled_until_it_is_said(pool: kvpool.Pool, model: kvpool.Model) -> None:
    cache(pool, model)
    assert pool.allocate(2, prompt(model), unfilled=True, take=0).length == 32  # it lacks nothing
    calls: list[Any] = [
        lambda: pool.append(2, [1]),
        lambda: pool.publish(2),
        lambda: pool.fork(2, 3),
        lambda: pool.truncate(2, 16),
    ]
    for call in calls:
        with pytest.raises(kvpool.Invalid):
            call()
    pool.fill(2)
    assert pool.append(2, [1]).length == 33
    pool.allocate(4, prompt(model), unfilled=True)
    assert pool.read(4, 2).tobytes() == pool.read(1, 2).tobytes()  # what matched is complete
    with pytest.raises(kvpool.Invalid):
        pool.read(4, 3)
    pool.preempt(4)
    pool.release(4)


def test_arenas_are_for_mapped_sessions(pool: kvpool.Pool, model: kvpool.Model) -> None:
    pool.register_model(model)
    with pytest.raises(kvpool.Invalid):
        pool.open_arena(model)


def test_released_is_gone(pool: kvpool.Pool, model: kvpool.Model) -> None:
    cache(pool, model)
    pool.release(1)
    calls: list[Any] = [
        lambda: pool.release(1),
        lambda: pool.fork(1, 2),
        lambda: pool.append(1, [1]),
        lambda: pool.truncate(1, 0),
        lambda: pool.preempt(1),
        lambda: pool.resume(1),
        lambda: pool.publish(1),
        lambda: pool.fill(1),
        lambda: pool.read(1, 1),
        lambda: pool.step(model, {1: [1]}),
    ]
    for call in calls:
        with pytest.raises(kvpool.NotFound) as caught:
            call()
        assert caught.value.code == caught.value.status == 1 and not caught.value.may_retry


def test_refusals_of_allocate(pool: kvpool.Pool, model: kvpool.Model) -> None:
    cache(pool, model)
    with pytest.raises(kvpool.Exists):
        pool.allocate(1, prompt(model))
    with pytest.raises(kvpool.NeverFits):
        pool.allocate(2, prompt(model, list(range(200_000))))
    with pytest.raises(kvpool.NotFound):
        pool.allocate(2, prompt(model, shared_domain="nowhere"))
    assert pool.allocate((1 << 64) - 1, prompt(model, [1])).length == 1


def test_two_tenants_share_nothing(daemon: Daemon, pool: kvpool.Pool, model: kvpool.Model) -> None:
    cache(pool, model)
    with daemon.pool(token=TOKEN) as other:
        other.register_model(model)
        assert other.match(prompt(model)).matched == 0
        with pytest.raises(kvpool.NotFound):
            other.release(1)
        assert other.stats()["payer"] == "you"
    with pytest.raises(kvpool.Denied):
        daemon.pool(token="nobody-has-this-one")


def test_arriving_is_waited_for(daemon: Daemon, pool: kvpool.Pool, model: kvpool.Model) -> None:
    pool.register_model(model)
    pool.allocate(1, prompt(model), unfilled=True)
    with daemon.pool() as second:
        second.register_model(model)
        assert second.allocate(1, prompt(model), unfilled=True).arriving == 32
        with pytest.raises(kvpool.Timeout):
            second.wait_arriving(prompt(model), timeout=0.05)
        waiting = second.later.wait_arriving(prompt(model))
        second.stats()  # one behind the other: now it waits there
        pool.write(1, blocks_of(1, 3))
        pool.fill(1)
        assert not waiting.is_done
        pool.publish(1)
        assert waiting.result().matched == 32
        assert second.match(prompt(model)).matched == 32
        with pytest.raises(kvpool.Miss):
            second.wait_arriving(prompt(model, [5, 6]))


def test_waiting_is_cancelled(pool: kvpool.Pool, model: kvpool.Model) -> None:
    pool.register_model(model)
    pool.allocate(1, prompt(model), unfilled=True)
    waiting = pool.later.wait_arriving(prompt(model))
    pool.later.flush()
    pool.cancel(waiting)
    with pytest.raises(kvpool.Cancelled):
        waiting.result()
    with pytest.raises(kvpool.NotFound):
        pool.cancel(waiting)


def test_many_requests_at_a_time(pool: kvpool.Pool, model: kvpool.Model) -> None:
    pool.register_model(model)
    later = pool.later
    pending = [later.allocate(i, prompt(model, [i])) for i in range(100)]
    pending += [later.fork(i, 1000 + i) for i in range(100)]
    assert pool.num_outstanding == 200
    assert [p.result().length for p in reversed(pending)] == [1] * 200
    assert pool.num_outstanding == 0
    waiting = [later.match(prompt(model)) for _ in range(256)]
    with pytest.raises(kvpool.Overloaded):
        later.match(prompt(model))
    assert waiting[0].result().matched == 0
    for each in waiting:
        each.result()


def test_reads_and_matches_mixed_find_their_frames(pool: kvpool.Pool, model: kvpool.Model) -> None:
    blocks = cache(pool, model)
    later = pool.later
    pending: list[Any] = []
    for i in range(30):
        pending.append((i % 3, later.read(1, 1, first_block=i % 3)))
        later.match(prompt(model))
        pending.append((None, later.read(404, 1)))  # has no frame
    for i, each in pending:
        if i is None:
            with pytest.raises(kvpool.NotFound):
                each.result()
        else:
            assert each.result().tobytes() == blocks[i].tobytes()


def test_timeouts_are_over_0_and_up_to_an_hour(pool: kvpool.Pool) -> None:
    for timeout in (0, -1, 3601, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            pool.stats(timeout=timeout)


def test_a_closed_pool_says_so(daemon: Daemon, model: kvpool.Model) -> None:
    with daemon.pool() as pool:
        pool.register_model(model)
        waiting = pool.later.stats()
        array = pool.staging.take(16)
    assert not pool.is_connected
    array[...] = 1  # still memory
    with pytest.raises(kvpool.Disconnected):
        waiting.result()
    with pytest.raises(kvpool.Disconnected):
        pool.stats()
    pool.close()
    pool.reconnect()
    assert pool.match(prompt(model)).matched == 0
    pool.close()


def test_operator(own_daemon: Daemon, model: kvpool.Model) -> None:
    with own_daemon.operator() as operator, own_daemon.pool() as pool:
        cache(pool, model)
        status = operator.status()
        assert (status["sessions"], status["sequences"], status["draining"]) == (1, 1, False)
        assert [m["name"] for m in operator.models()] == ["toy"]
        assert {t["name"] for t in operator.tenants()} == {"me", "you"}
        operator.create_domain("docs", readers=["you"], fillers=["me"], limit_bytes=1 << 20)
        (domain,) = operator.domains()
        assert (domain["name"], domain["limit_bytes"]) == ("docs", 1 << 20)
        with pytest.raises(kvpool.Exists):
            operator.create_domain("docs")
        operator.set_quota("me", guarantee_bytes=65536, weight=3)
        (me,) = (t for t in operator.tenants() if t["name"] == "me")
        assert (me["guarantee_bytes"], me["weight"], me["limit_bytes"]) == (65536, 3, None)
        cache(pool, model, 2, fill_domain="docs")
        with own_daemon.pool(token=TOKEN) as other:
            other.register_model(model)
            assert other.match(prompt(model, shared_domain="docs")).matched == 32
        assert pool.match(prompt(model)).matched == 32
        operator.clear(model="toy")
        assert pool.match(prompt(model)).matched == 0
        with pytest.raises(kvpool.NotFound):
            operator.clear(domain="nowhere")
        operator.drain()
        with pytest.raises(kvpool.Draining):
            pool.allocate(9, prompt(model))
        operator.drain(undo=True)
        pool.allocate(9, prompt(model))
        (session,) = operator.sessions()
        assert session["session"] == pool.session_id
        assert operator.stats()["version"]
        operator.kick(pool.session_id)
        with pytest.raises((kvpool.Stale, kvpool.Disconnected)):  # it may not have closed yet
            pool.match(prompt(model))
        operator.shutdown(forget=True)
    assert own_daemon.process and own_daemon.process.wait(20) == 0


def test_threads_may_take_turns(pool: kvpool.Pool, model: kvpool.Model) -> None:
    pool.register_model(model)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(pool.match(prompt(model))))
    thread.start()
    thread.join()
    assert found == [kvpool.Matched(0, 0)] and pool.stats()


def test_a_daemon_that_does_not_answer(own_daemon: Daemon) -> None:
    """The client gives up by itself, a second after the deadline; a late answer is dropped."""
    assert own_daemon.process
    with own_daemon.pool() as pool:
        own_daemon.process.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        with pytest.raises(kvpool.Timeout):
            pool.stats(timeout=0.2)
        assert 1.1 < time.monotonic() - start < 5
        own_daemon.process.send_signal(signal.SIGCONT)
        assert pool.stats()["payer"] == "me"


def test_blocks_of_an_opaque_model_and_more_of_them_than_a_message_takes(daemon: Daemon) -> None:
    """The bytes are the engine's own business: stored, found again, but not attended."""
    model = kvpool.Model(name="o", weights_revision=secrets.token_hex(8), num_layers=0, dtype=kvpool.OPAQUE,
                         layout_name="mine", layout_version=2, opaque_block_bytes=1 << 20)  # fmt: skip
    prompt = kvpool.Prompt(model, list(range(6 * 16 + 1)))
    blocks = np.random.default_rng(1).integers(0, 256, (6, 1 << 20), np.uint8)
    with daemon.pool(staging_bytes=8 << 20) as pool:
        assert pool.register_model(model).block_bytes == (1 << 20,)
        pool.allocate(1, prompt, unfilled=True)
        pool.write(1, blocks[:5])  # over 4 MiB, and not in staging
        pool.write(1, blocks[5:], first_block=5)
        some = [pool.later.write(1, blocks[n % 6 : n % 6 + 1], first_block=n % 6) for n in range(90)]
        for pending in some:  # more together than a daemon queues of a session
            pending.result()
        pool.fill(1)
        pool.publish(1)
        assert pool.match(prompt).matched == 6 * 16
    with daemon.pool(staging_bytes=8 << 20) as other:
        other.register_model(model)
        other.allocate(1, prompt)
        assert (other.read(1, 4, first_block=2) == blocks[2:6]).all()
        with pytest.raises(kvpool.Unsupported, match="staging"):
            other.read(1, 5)
        out = other.staging.take((5, 1 << 20), np.uint8)
        assert (other.read(1, 5, out=out) == blocks[:5]).all()
        with pytest.raises(ValueError, match="opaque"):
            model.kv_views(out)
        with pytest.raises(MemoryError):
            other.write(1, np.zeros((64, 1 << 20), np.uint8))


@pytest.mark.parametrize("rings", [True, False])
def test_steps_are_polled_too(daemon: Daemon, model: kvpool.Model, rings: bool) -> None:
    q, kv = np.zeros((2, 4, 16), np.float32), np.ones((2, 2, 16), np.float32)
    with daemon.pool(rings=rings) as pool:
        pool.register_model(model)
        pool.allocate(1, kvpool.Prompt(model, [1, 2]), unfilled=True)
        begun = pool.later.step(model, {1: [1, 2]})
        while not begun.is_done:
            pool.later.poll(10)
        step = begun.result()
        layers = [pool.later.attend(step, layer, q, kv, kv) for layer in range(2)]
        while pool.num_outstanding:
            assert pool.later.poll(10) > 0
        assert all(layer.is_done for layer in layers) and step.is_ended
