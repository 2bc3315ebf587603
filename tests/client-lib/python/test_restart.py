"""A daemon that ends, or is killed, under an engine."""

from __future__ import annotations

import signal
import threading
import time

import kvpool
import numpy as np
import pytest
from conftest import Daemon, toy_model

TEXT = list(range(40))


def attend_all(pool: kvpool.Pool, step: kvpool.Step) -> None:
    shapes = step.shapes()
    assert shapes.v
    for layer in range(step.model.num_layers):
        pool.attend(step, layer, *(np.ones(s, np.float32) for s in (shapes.q, shapes.k, shapes.v)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_reconnect_registers_again(own_daemon: Daemon, number: signal.Signals) -> None:
    """Two models, so that their handles differ if they are registered in another order."""
    models = [toy_model(num_layers=n) for n in (1, 2)]
    pool = own_daemon.pool()
    for model in models:
        pool.register_model(model)
    pool.allocate(1, kvpool.Prompt(models[1], TEXT), unfilled=True)
    old = pool.staging.take(4)
    boot = pool._core.session and pool._core.session.boot_id
    own_daemon.stop(number)
    with pytest.raises(kvpool.Disconnected):
        pool.stats()
    assert not pool.is_connected
    with pytest.raises(kvpool.Disconnected):
        pool.match(kvpool.Prompt(models[0], TEXT))
    own_daemon.start()
    pool.reconnect()
    assert pool._core.session and pool._core.session.boot_id != boot
    assert pool.staging.offset_of(old) is None
    old[...] = 5  # of the old staging: nobody's but ours
    with pytest.raises(kvpool.NotFound):
        pool.release(1)
    for sequence, model in enumerate(models):
        pool.allocate(sequence, kvpool.Prompt(model, TEXT, salt=b"new"), unfilled=True)
        with pool.stepping(model, {sequence: TEXT}) as step:
            attend_all(pool, step)
        assert pool.match(kvpool.Prompt(model, TEXT, salt=b"new")).matched == 32
    pool.close()


def test_a_request_under_way_is_disconnected(own_daemon: Daemon, model: kvpool.Model) -> None:
    with own_daemon.pool() as pool:
        pool.register_model(model)
        pool.allocate(1, kvpool.Prompt(model, TEXT), unfilled=True)
        threading.Timer(0.2, own_daemon.stop, [signal.SIGKILL]).start()
        start = time.monotonic()
        with pytest.raises(kvpool.Disconnected):
            pool.wait_arriving(kvpool.Prompt(model, TEXT), timeout=60)
        assert time.monotonic() - start < 10


def test_a_step_under_way_is_disconnected(own_daemon: Daemon, model: kvpool.Model) -> None:
    with own_daemon.pool() as pool:
        pool.register_model(model)
        pool.allocate(1, kvpool.Prompt(model, TEXT), unfilled=True)
        with pytest.raises(kvpool.Disconnected), pool.stepping(model, {1: TEXT}) as step:
            own_daemon.stop(signal.SIGKILL)
            attend_all(pool, step)


def test_connect_waits_for_a_daemon_that_starts(own_daemon: Daemon) -> None:
    own_daemon.stop()
    found: list[dict[str, object]] = []

    def connect() -> None:
        with own_daemon.pool(connect_timeout=30) as pool:
            found.append(pool.stats())

    thread = threading.Thread(target=connect)
    thread.start()
    time.sleep(0.1)
    own_daemon.start()
    thread.join()
    assert found
