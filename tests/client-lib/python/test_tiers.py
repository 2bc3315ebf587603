"""Prompts that come back from disk: what is matched below, prefetched, fetched; what is not stored."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import kvpool
import numpy as np
import pytest
from conftest import Daemon, toy_model

BLOCKS, BYTES = 8, 8192  # of the prompt; of a block: 2 layers, K and V, 2 heads, 16 tokens of 16 f32


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    disk = Path(tmp_path_factory.mktemp("disk"))
    daemon = Daemon(
        pool_bytes="1MiB", disk_directory=str(disk), disk_max_bytes="64MiB",
        disk_granule_bytes="1MiB", disk_min_block_bytes="8KiB", disk_max_block_bytes="64KiB",
        ahead_bytes="512KiB",
    )  # fmt: skip
    yield daemon
    daemon.finish()


def fill(pool: kvpool.Pool, model: kvpool.Model, tokens: list[int], seed: int) -> bytes:
    """Caches @tokens and lets go of them: the blocks' bytes."""
    blocks = np.random.default_rng(seed).integers(0, 256, (BLOCKS, BYTES), np.uint8)
    pool.allocate(1, kvpool.Prompt(model, tokens), unfilled=True)
    pool.write(1, blocks)
    pool.fill(1)
    pool.publish(1)
    pool.release(1)
    return blocks.tobytes()


def crowd_out(pool: kvpool.Pool, model: kvpool.Model, base: int) -> None:
    """Four times what the pool has room for goes through it: prompts that nobody had before."""
    for number in range(base, base + 64):
        fill(pool, model, [1000 * number + at for at in range(16 * BLOCKS)], number)
        time.sleep(0.002)  # copies ahead of evictions have their turn


def test_a_prompt_comes_back_from_disk(daemon: Daemon) -> None:
    model, tokens = toy_model(), list(range(16 * BLOCKS))
    prompt = kvpool.Prompt(model, tokens, raw=True)
    with daemon.pool() as pool:
        pool.register_model(model)
        wanted = fill(pool, model, tokens, 7)
        assert pool.match(prompt) == kvpool.Matched(16 * BLOCKS, 0, 0)
        crowd_out(pool, model, 100)
        assert pool.match(prompt) == kvpool.Matched(16 * BLOCKS, 0, 16 * BLOCKS)

        found = pool.prefetch(prompt)
        assert (found.matched, found.present) == (16 * BLOCKS, 0)
        assert found.coming > 0
        state = pool.allocate(2, prompt, unfilled=True)
        assert (state.matched, state.length) == (16 * BLOCKS, 16 * BLOCKS)
        assert pool.match(prompt).below == 0
        pool.fill(2)
        assert pool.read(2, BLOCKS).tobytes() == wanted

        pool.preempt(2)  # and back, ahead of its resume
        crowd_out(pool, model, 200)
        assert pool.prefetch(2).matched > 0
        assert pool.resume(2).below + pool.match(prompt).matched > 0
        assert pool.read(2, BLOCKS).tobytes() == wanted


def test_a_session_that_stores_nothing_below(daemon: Daemon) -> None:
    model, tokens = toy_model(), list(range(16 * BLOCKS))
    with daemon.pool(store="none") as pool:
        pool.register_model(model)
        fill(pool, model, tokens, 8)
        crowd_out(pool, model, 300)
        assert pool.match(kvpool.Prompt(model, tokens, raw=True)).matched == 0


def test_an_unknown_policy(daemon: Daemon) -> None:
    with pytest.raises(ValueError, match="none, prompt or all"):
        daemon.pool(store="some")
