"""Mapped arenas: what one writes there is what a reader of the pool gets, without a copy."""

from __future__ import annotations

import multiprocessing
import os
import socket
from multiprocessing.connection import Connection

import kvpool
import numpy as np
import pytest
from conftest import Daemon, toy_model

TEXT = list(range(40))


def test_a_mapped_engine(daemon: Daemon, model: kvpool.Model) -> None:
    with daemon.pool(mapped=True) as pool:
        pool.register_model(model)
        with pool.open_arena(model) as arena:
            state = pool.allocate(1, kvpool.Prompt(model, TEXT), unfilled=True, table=True)
            slots = state.tables[0].slots.astype(int)
            k, v = arena.kv()
            assert v is not None and k.flags.writeable
            wanted = np.random.default_rng(1).standard_normal((3, *k.shape[1:]), np.float32)
            k[slots - 1], v[slots - 1] = wanted, -wanted
            pool.publish(1, 40)
            got_k, got_v = model.kv_views(pool.read(1, 3))
            assert got_v is not None
            assert np.array_equal(got_k, wanted) and np.array_equal(got_v, -wanted)
            assert pool.match(kvpool.Prompt(model, TEXT)).matched == 32
            with pytest.raises(kvpool.KvpoolError):
                pool.step(model, {1: [1]})
        assert k[slots[0] - 1].tobytes() == wanted[0].tobytes()  # mapped as long as k is there
        with pytest.raises(ValueError, match="closed"):
            _ = arena.blocks
        arena.close()


def test_a_reader_of_a_shared_domain_cannot_write(own_daemon: Daemon) -> None:
    model = toy_model()
    with own_daemon.operator() as operator:
        operator.create_domain("docs", readers=["me"])
    with own_daemon.pool(mapped=True) as pool:
        pool.register_model(model)
        with pool.open_arena(model, domain="docs") as arena:
            assert not arena.is_writable and not arena.blocks.flags.writeable
        with pytest.raises(kvpool.NotFound):
            pool.open_arena(model, domain="nowhere")


def test_many_arenas_at_a_time_find_their_descriptors(daemon: Daemon) -> None:
    models = [toy_model(num_layers=n, k_head_dim=16 * n, v_head_dim=16) for n in range(1, 5)]
    with daemon.pool(mapped=True) as pool:
        shapes = [pool.register_model(model) for model in models]
        pending = [pool.later.open_arena(model) for model in models]
        arenas = [each.result() for each in reversed(pending)][::-1]
        for arena, shape in zip(arenas, shapes, strict=True):
            assert arena.stride_bytes == shape.stride_bytes[0]
            assert arena.blocks.shape[1] == arena.stride_bytes
            arena.close()


def test_a_session_without_mapping_has_no_arenas(pool: kvpool.Pool, model: kvpool.Model) -> None:
    pool.register_model(model)
    with pytest.raises(kvpool.Invalid):
        pool.open_arena(model)


def work(pipe: Connection, fds: socket.socket, directory: str, model: kvpool.Model) -> None:
    """A worker: attaches, maps what it was given, writes a block."""
    session, token, number, stride, size, slot = pipe.recv()
    _, (fd,), _, _ = socket.recv_fds(fds, 1, 1)
    with kvpool.Attachment(session, token, directory):
        with kvpool.Arena(fd, number, stride, size, True, model) as arena:
            k, _ = arena.kv()
            k[slot - 1] = 42
            del k
        pipe.send("written")
        pipe.recv()


def test_a_further_process_maps_what_the_session_opened(
    daemon: Daemon, model: kvpool.Model
) -> None:
    ours, theirs = socket.socketpair()
    spawn = multiprocessing.get_context("spawn")
    pipe, end = spawn.Pipe()
    with daemon.pool(mapped=True) as pool:
        pool.register_model(model)
        arena = pool.open_arena(model)
        state = pool.allocate(1, kvpool.Prompt(model, TEXT), unfilled=True, table=True)
        slot = int(state.tables[0].slots[0])
        worker = spawn.Process(target=work, args=(end, theirs, str(daemon.run), model))
        worker.start()
        pipe.send((pool.session_id, pool.session_token, arena.number, arena.stride_bytes,
                   arena.num_bytes, slot))  # fmt: skip
        socket.send_fds(ours, [b"x"], [arena.fd])
        assert pipe.poll(30) and pipe.recv() == "written"
        assert (arena.kv()[0][slot - 1] == 42).all()
        pipe.send("go")
        worker.join(30)
        assert worker.exitcode == 0
        arena.close()
        with pytest.raises(kvpool.NotFound):
            kvpool.Attachment(pool.session_id ^ 1, os.urandom(16), daemon.run)
