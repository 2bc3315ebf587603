"""The asyncio face: the same verbs, many at a time, in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import dense
import kvpool
import numpy as np
import pytest
from conftest import Daemon, toy_model

TEXT = list(range(40))


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("rings", [True, False])
def test_engines_of_one_loop(daemon: Daemon, rings: bool) -> None:
    """Twenty sequences at a time, each with steps of its own: every output is dense attention's."""
    model = toy_model(num_layers=1)

    async def generate(pool: kvpool.AsyncPool, sequence: int) -> None:
        text = [sequence * 100 + i for i in range(20)]
        q, k, v = (draw(sequence * 3 + i, 30, heads, 16) for i, heads in enumerate((4, 2, 2)))
        await pool.allocate(sequence, kvpool.Prompt(model, text), unfilled=True)
        done = 0
        for new in (text, *([i] for i in range(10))):
            end = done + len(new)
            async with pool.stepping(model, {sequence: new}) as step:
                out = await pool.attend(step, 0, q[done:end], k[done:end], v[done:end])
            wanted, _ = dense.attention(q[done:end], k[:end], v[:end], done)
            np.testing.assert_allclose(out, wanted, rtol=0, atol=2e-6)
            done = end
        await pool.release(sequence)

    async def main() -> None:
        async with kvpool.AsyncPool(directory=daemon.run, rings=rings) as pool:
            await pool.register_model(model)
            await asyncio.gather(*(generate(pool, i) for i in range(20)))
            assert pool.num_outstanding == 0
            assert pool.staging.num_free() == pool.staging.num_bytes

    asyncio.run(main())


def test_what_is_asked_together_waits_for_credits(daemon: Daemon, model: kvpool.Model) -> None:
    async def main() -> None:
        async with kvpool.AsyncPool(directory=daemon.run) as pool:
            await pool.register_model(model)
            asked = (pool.match(kvpool.Prompt(model, TEXT)) for _ in range(1000))
            assert {found.matched for found in await asyncio.gather(*asked)} == {0}

    asyncio.run(main())


def test_who_waits_for_credits_is_told_that_the_daemon_died(
    own_daemon: Daemon, model: kvpool.Model
) -> None:
    """More than twice as many as can be outstanding; some are cancelled before their turn."""

    async def main() -> None:
        async with kvpool.AsyncPool(directory=own_daemon.run) as pool:
            await pool.register_model(model)
            prompt = kvpool.Prompt(model, TEXT)
            await pool.allocate(1, prompt, unfilled=True)
            asked = [asyncio.create_task(pool.wait_arriving(prompt)) for _ in range(900)]
            await asyncio.sleep(0.05)
            for task in asked[250:700]:
                task.cancel()
            own_daemon.stop(signal.SIGKILL)
            async with asyncio.timeout(10):
                said = await asyncio.gather(*asked, return_exceptions=True)
            kinds = [type(each) for each in said]
            assert kinds[:250] == [kvpool.Disconnected] * 250
            assert kinds[700:] == [kvpool.Disconnected] * 200

    asyncio.run(main())


def test_who_is_cancelled_while_waiting_for_credits_takes_no_turn(
    daemon: Daemon, model: kvpool.Model
) -> None:
    async def main() -> None:
        async with kvpool.AsyncPool(directory=daemon.run) as pool:
            await pool.register_model(model)
            prompt = kvpool.Prompt(model, TEXT)
            asked = [asyncio.create_task(pool.match(prompt)) for _ in range(1000)]
            await asyncio.sleep(0)  # all have asked: 256 are outstanding, the rest waits
            for task in asked[256:900]:
                task.cancel()
            async with asyncio.timeout(10):
                said = await asyncio.gather(*asked, return_exceptions=True)
            assert [getattr(each, "matched", None) for each in said[900:]] == [0] * 100

    asyncio.run(main())


def test_a_task_that_is_cancelled_cancels_its_request(daemon: Daemon, model: kvpool.Model) -> None:
    async def main() -> None:
        async with kvpool.AsyncPool(directory=daemon.run) as pool:
            await pool.register_model(model)
            await pool.allocate(1, kvpool.Prompt(model, TEXT), unfilled=True)
            waiting = asyncio.create_task(pool.wait_arriving(kvpool.Prompt(model, TEXT)))
            await asyncio.sleep(0.05)
            assert pool.num_outstanding == 1
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await pool.stats()
            async with asyncio.timeout(5):
                while pool.num_outstanding:
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def test_timeouts_and_refusals_are_raised(daemon: Daemon, model: kvpool.Model) -> None:
    async def main() -> None:
        async with kvpool.AsyncPool(directory=daemon.run) as pool:
            await pool.register_model(model)
            with pytest.raises(kvpool.NotFound):
                await pool.release(404)
            await pool.allocate(1, kvpool.Prompt(model, TEXT), unfilled=True)
            with pytest.raises(kvpool.Timeout):
                await pool.wait_arriving(kvpool.Prompt(model, TEXT), timeout=0.05)
            with pytest.raises(RuntimeError):
                async with pool.stepping(model, {1: TEXT}):
                    raise RuntimeError
            await pool.release(1)  # it is in no step any more

    asyncio.run(main())


def test_a_daemon_that_stops_answering_is_a_timeout(own_daemon: Daemon) -> None:
    async def main() -> None:
        assert own_daemon.process
        async with kvpool.AsyncPool(directory=own_daemon.run) as pool:
            own_daemon.process.send_signal(signal.SIGSTOP)
            with pytest.raises(kvpool.Timeout):
                await pool.stats(timeout=0.1)
            own_daemon.process.send_signal(signal.SIGCONT)
            assert (await pool.stats())["payer"] == "me"

    asyncio.run(main())


def test_who_gives_up_connecting_has_no_session(own_daemon: Daemon) -> None:
    async def main() -> None:
        assert own_daemon.process
        pool = kvpool.AsyncPool(directory=own_daemon.run)
        for is_again in (False, True):
            own_daemon.process.send_signal(signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await pool.connect()
            own_daemon.process.send_signal(signal.SIGCONT)
            if is_again:
                await pool.connect()
            async with kvpool.AsyncOperator(directory=own_daemon.run) as operator:
                async with asyncio.timeout(10):
                    while len(await operator.sessions()) != is_again:
                        await asyncio.sleep(0.05)
                    await asyncio.sleep(0.3)
                assert len(await operator.sessions()) == is_again == pool.is_connected
        assert (await pool.stats())["payer"] == "me"
        await pool.close()

    asyncio.run(main())


def test_a_daemon_that_dies_and_comes_back(own_daemon: Daemon, model: kvpool.Model) -> None:
    async def main() -> None:
        async with kvpool.AsyncPool(directory=own_daemon.run) as pool:
            await pool.register_model(model)
            await pool.allocate(1, kvpool.Prompt(model, TEXT), unfilled=True)
            waiting = asyncio.create_task(pool.wait_arriving(kvpool.Prompt(model, TEXT)))
            await asyncio.sleep(0.05)
            own_daemon.stop(signal.SIGKILL)
            with pytest.raises(kvpool.Disconnected):
                await waiting
            assert not pool.is_connected
            with pytest.raises(kvpool.Disconnected):
                await pool.stats()
            own_daemon.start()
            await pool.reconnect()
            assert (await pool.match(kvpool.Prompt(model, TEXT))).matched == 0

    asyncio.run(main())


def test_an_operator_too(daemon: Daemon) -> None:
    async def main() -> None:
        async with kvpool.AsyncOperator(directory=daemon.run) as operator:
            status, tenants = await asyncio.gather(operator.status(), operator.tenants())
            assert not status["draining"] and len(tenants) == 2

    asyncio.run(main())


def test_nobody_there(tmp_path: object) -> None:
    async def main() -> None:
        pool = kvpool.AsyncPool(directory=str(tmp_path), connect_timeout=0.05)
        with pytest.raises(kvpool.Disconnected, match="is kvpoold running"):
            await pool.connect()
        with contextlib.suppress(kvpool.Disconnected):
            await pool.close()

    asyncio.run(main())
