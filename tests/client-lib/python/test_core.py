"""core.py against a daemon that is played here: messages that no good daemon would send, or late."""

from __future__ import annotations

import fcntl
import gc
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kvpool
import kvpool.core
import numpy as np
import pytest
import zmq
from conftest import toy_model
from kvpool import wire


class Fake:
    """Welcomes one engine; the test takes its messages and answers them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.linger = 0
        self.router.bind(f"ipc://{folder}/request")
        self.router.rcvtimeo = 5000
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(folder / "session.sock"))
        self.listener.listen()
        self.peer = b""
        threading.Thread(target=self.welcome, daemon=True).start()

    def welcome(self) -> None:
        self.connection, _ = self.listener.accept()
        self.connection.recv(512)
        staging = os.memfd_create("staging")
        os.write(staging, struct.pack("<IIQQQQ", 0x4B565347, 1, 4096, 36864, 45056, 1 << 20))
        os.ftruncate(staging, 45056 + (1 << 20))
        fds = [staging, *(os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2))]
        head = struct.pack("<IHH16s16s", 0x4B565057, 1, 0, b"b" * 16, b"t" * 16)
        tail = struct.pack(
            "<QQ128s", 77, 45056 + (1 << 20), f"ipc://{self.folder}/request".encode()
        )
        socket.send_fds(self.connection, [head + tail], fds)
        for fd in fds:
            os.close(fd)

    def take(self) -> tuple[wire.Batch, list[bytes]]:
        self.peer, body, *frames = self.router.recv_multipart()
        return wire.Batch.FromString(body), frames

    def say(self, replies: list[wire.Reply], *frames: bytes) -> None:
        self.raw(wire.ReplyBatch(major=1, replies=replies).SerializeToString(), *frames)

    def raw(self, *frames: bytes) -> None:
        self.router.send_multipart([self.peer, *frames])

    def finish(self) -> None:
        self.connection.close()
        self.listener.close()
        self.router.close()
        self.context.term()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    fake = Fake(tmp_path)
    yield fake
    fake.finish()


@pytest.fixture
def pool(fake: Fake) -> Iterator[kvpool.Pool]:
    with kvpool.Pool(directory=fake.folder, rings=False) as pool:
        yield pool


def ask(pool: kvpool.Pool, num: int = 1) -> list[kvpool.Pending[Any]]:
    pending = [pool.later.release(i) for i in range(num)]
    pool.later.flush()
    return pending


def test_requests_are_collected_into_one_message(pool: kvpool.Pool, fake: Fake) -> None:
    pending = ask(pool, 100)
    batch, frames = fake.take()
    assert (batch.major, batch.session, batch.token, frames) == (1, 77, b"t" * 16, [])
    assert [r.release.sequence for r in batch.requests] == list(range(100))
    ids = [r.id for r in batch.requests]
    assert len(set(ids)) == 100 and 0 not in ids
    assert {r.deadline_ms for r in batch.requests} == {10000}
    fake.say([wire.Reply(id=i) for i in reversed(ids[50:])])
    fake.say([wire.Reply(id=i) for i in ids[:50]])
    for each in pending:
        each.result()


def test_answers_are_taken_in_without_waiting_for_one_of_them(
    pool: kvpool.Pool, fake: Fake
) -> None:
    assert pool.later.poll(5) == 0  # nothing is outstanding
    pending = [pool.later.release(i) for i in range(3)]
    assert pool.later.poll() == 0
    batch, _ = fake.take()
    start = time.monotonic()
    assert pool.later.poll(0.05) == 0 and time.monotonic() - start >= 0.05
    fake.say([wire.Reply(id=request.id) for request in batch.requests[1:]])
    assert pool.later.poll(5) == 2
    assert [each.is_done for each in pending] == [False, True, True]
    fake.connection.close()
    assert pool.later.poll(5) == 1
    with pytest.raises(kvpool.Disconnected):
        pending[0].result()


def test_no_message_is_over_the_cap(pool: kvpool.Pool, fake: Fake) -> None:
    for i in range(10):
        pool.later.append(i, range(1 << 18))  # 1 MiB each
    pool.later.flush()
    sizes: list[int] = []
    while sum(sizes) < 10:
        _, body = fake.router.recv_multipart()
        assert len(body) <= 8 << 20
        sizes.append(len(wire.Batch.FromString(body).requests))
    assert sizes == [7, 3]
    with pytest.raises(ValueError, match="bytes are more than"):
        pool.append(1, range(3 << 20))


def test_data_frames_follow_in_order(pool: kvpool.Pool, fake: Fake) -> None:

    for i in range(3):
        pool.later.write(i, np.full((1, 8), i, np.uint8))
        pool.later.release(i)
    pool.later.flush()
    batch, frames = fake.take()
    assert frames == [bytes([i] * 8) for i in range(3)]
    assert [r.WhichOneof("verb") for r in batch.requests] == ["write", "release"] * 3


@pytest.mark.parametrize("body", [b"\xff\xff\xff", b""])
def test_garbage_ends_the_connection_or_means_nothing(
    pool: kvpool.Pool, fake: Fake, body: bytes
) -> None:
    (pending,) = ask(pool)
    batch, _ = fake.take()
    fake.raw(body)
    if body:
        with pytest.raises(kvpool.Disconnected):
            pending.result()
        assert not pool.is_connected
    else:
        fake.say([wire.Reply(id=batch.requests[0].id)])
        pending.result()


def test_what_nobody_asked_is_dropped(pool: kvpool.Pool, fake: Fake) -> None:
    (pending,) = ask(pool)
    batch, _ = fake.take()
    (request,) = batch.requests
    fake.say(
        [wire.Reply(id=12345678), wire.Reply(id=request.id), wire.Reply(id=request.id, status=1)]
    )
    pending.result()


def test_a_message_that_is_refused_as_a_whole(pool: kvpool.Pool, fake: Fake) -> None:
    pending = ask(pool, 3)
    fake.take()
    fake.say([wire.Reply(id=0, status=14, message="over a cap")])
    for each in pending:
        with pytest.raises(kvpool.Malformed, match="over a cap"):
            each.result()


def test_another_boot_id_is_another_daemon(pool: kvpool.Pool, fake: Fake) -> None:
    """ZeroMQ connected again before the end of the session was seen: no Stale of the new one."""
    first, second = ask(pool, 2)
    batch, _ = fake.take()
    replies = [wire.Reply(id=r.id, status=8 * i) for i, r in enumerate(batch.requests)]
    fake.raw(wire.ReplyBatch(boot_id=b"b" * 16, replies=replies[:1]).SerializeToString())
    first.result()
    fake.raw(wire.ReplyBatch(boot_id=b"c" * 16, replies=replies[1:]).SerializeToString())
    with pytest.raises(kvpool.Disconnected):
        second.result()
    assert not pool.is_connected


def test_a_status_of_a_newer_daemon(pool: kvpool.Pool, fake: Fake) -> None:
    (pending,) = ask(pool)
    batch, _ = fake.take()
    fake.say([wire.Reply(id=batch.requests[0].id, status=99, message="too new")])
    with pytest.raises(kvpool.KvpoolError, match="too new") as caught:
        pending.result()
    assert caught.value.status == 99


def test_a_late_data_frame_is_not_another_ones(
    pool: kvpool.Pool, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvpool.core, "GRACE", 0.0)
    late = pool.later.read(1, 1, timeout=0.01)
    with pytest.raises(kvpool.Timeout, match="may have been carried out"):
        late.result()
    pending = pool.later.read(2, 1)
    pool.later.flush()
    first, second = fake.take()[0].requests[0].id, fake.take()[0].requests[0].id
    replies = [wire.Reply(id=i, data=wire.DataResult(num_bytes=3)) for i in (first, second)]
    fake.say(replies, b"old", b"new")
    assert pending.result().tobytes() == b"new"


def test_what_an_attend_that_timed_out_occupies_stays_taken(
    pool: kvpool.Pool, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(kvpool.core, "GRACE", 0.0)
    step = kvpool.Step(5, 1, toy_model(num_layers=2))
    shapes = step.shapes()
    assert shapes.v
    tensors = [np.zeros(s, np.float32) for s in (shapes.q, shapes.k, shapes.v)]
    with pytest.raises(kvpool.Timeout):
        pool.attend(step, 0, *tensors, timeout=0.01)
    gc.collect()
    assert pool.staging.num_free() < pool.staging.num_bytes
    monkeypatch.setattr(kvpool.core, "GRACE", 1.0)
    pending = pool.later.end_step(step, abandon=True)
    pool.later.flush()
    fake.take()
    fake.say([wire.Reply(id=fake.take()[0].requests[0].id)])
    pending.result()
    assert pool.staging.num_free() == pool.staging.num_bytes


def test_what_a_read_that_timed_out_is_written_to_stays_taken_until_it_is(
    pool: kvpool.Pool, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(kvpool.core, "GRACE", 0.0)
    with pytest.raises(kvpool.Timeout):
        pool.read(1, 1, out=pool.staging.take(8192, np.uint8), timeout=0.01)
    gc.collect()
    assert pool.staging.num_free() == pool.staging.num_bytes - 8192
    monkeypatch.setattr(kvpool.core, "GRACE", 1.0)
    (pending,) = ask(pool)
    for _ in range(2):
        fake.say([wire.Reply(id=fake.take()[0].requests[0].id, status=0)])
    pending.result()
    gc.collect()
    assert pool.staging.num_free() == pool.staging.num_bytes


def test_a_model_that_cannot_be_registered_again_leaves_nothing_half(
    pool: kvpool.Pool, fake: Fake
) -> None:
    model = toy_model()
    later = pool.later.register_model(model)
    pool.later.flush()
    batch, _ = fake.take()
    fake.say([wire.Reply(id=batch.requests[0].id, model=wire.ModelResult(model=5))])
    later.result()

    def refuse() -> None:
        fake.welcome()
        batch, _ = fake.take()
        fake.say([wire.Reply(id=batch.requests[0].id, status=7)])

    thread = threading.Thread(target=refuse)
    thread.start()
    with pytest.raises(kvpool.Limit):
        pool.reconnect()
    thread.join()
    assert not pool.is_connected
    with pytest.raises(kvpool.Disconnected):
        pool.match(kvpool.Prompt(model, [1]))


def test_descriptors_are_not_for_programs_that_we_start(pool: kvpool.Pool) -> None:
    session = pool._core.session
    assert session
    for fd in (session.own_event, session.daemon_event, session.socket.fileno()):
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_a_pool_that_is_forgotten_closes_its_descriptors(fake: Fake) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    pool = kvpool.Pool(directory=fake.folder, rings=False)
    fd = pool._core.session and pool._core.session.own_event
    del pool
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(fd or -1)
    until = time.monotonic() + 5
    while len(os.listdir("/proc/self/fd")) > before + 1:  # the fake's end
        assert time.monotonic() < until


def test_caps_of_outstanding_requests(pool: kvpool.Pool) -> None:
    pending = ask(pool, 256)
    with pytest.raises(kvpool.Overloaded):
        pool.later.release(1)
    pool.close()
    assert pool.num_outstanding == 0
    for each in pending:
        with pytest.raises(kvpool.Disconnected):
            each.result()


def test_who_takes_nothing_any_more_is_gone(
    pool: kvpool.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake takes no message: requests expire, and where no more messages fit nothing waits."""
    monkeypatch.setattr(kvpool.core, "GRACE", 0.01)

    def fill() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            pool.later.release(1, timeout=0.001)
            pool.later.flush()
            if pool.num_outstanding == 256:
                pool.later.poll(0.1)

    with pytest.raises(kvpool.Disconnected):
        fill()
    assert not pool.is_connected and pool.num_outstanding == 0
