"""rings.py: libkvpool found, old, or not there; the daemon's half is played here (section 6)."""

from __future__ import annotations

import ctypes.util
import mmap
import os
import struct
from collections.abc import Iterator

import kvpool
import pytest
from conftest import Daemon
from kvpool.rings import SUBMISSION, Rings, library

PATH = os.environ["KVPOOL_LIBRARY"]
TAIL, HEAD, ARMED = 0, 64, 128
SUBMISSIONS, COMPLETIONS = 64, 256


@pytest.fixture
def memory() -> mmap.mmap:
    memory = mmap.mmap(-1, 45056 + 4096)
    memory[:40] = struct.pack("<IIQQQQ", 0x4B565347, 1, 4096, 36864, 45056, 4096)
    return memory


@pytest.fixture
def event() -> Iterator[int]:
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    yield fd
    os.close(fd)


@pytest.fixture
def rings(memory: mmap.mmap, event: int) -> Rings:
    found = library(PATH)
    assert found
    return Rings(found, memory, event)


def word(memory: mmap.mmap, at: int, value: int | None = None) -> int:
    if value is not None:
        struct.pack_into("<Q", memory, at, value)
    return int(struct.unpack_from("<Q", memory, at)[0])


def complete(memory: mmap.mmap, id_: int) -> None:
    tail = word(memory, COMPLETIONS + TAIL)
    struct.pack_into("<QIIQQ", memory, 36864 + tail % 256 * 32, id_, 1, 2, 3, 0)
    word(memory, COMPLETIONS + TAIL, tail + 1)


def test_an_entry_is_the_128_bytes_of_the_protocol() -> None:
    entry = SUBMISSION.pack(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0.5, 2.0)
    assert len(entry) == 128
    assert struct.unpack_from("<QIIQQIIQ", entry) == (1, 2, 3, 4, 5, 6, 7, 8)
    assert struct.unpack_from("<6Q2f24s", entry, 48) == (9, 10, 11, 12, 13, 14, 0.5, 2.0, bytes(24))


def test_entries_go_and_completions_come(rings: Rings, memory: mmap.mmap, event: int) -> None:
    assert rings.receive() is None and rings.arm()
    memory[SUBMISSIONS + ARMED] = 1
    assert rings.submit(bytes([7]) * 128)
    assert memory[4096 : 4096 + 128] == bytes([7]) * 128
    assert word(memory, SUBMISSIONS + TAIL) == 1 and os.eventfd_read(event) == 1
    assert not rings.spin(10)
    assert rings.arm() and memory[COMPLETIONS + ARMED] == 1
    rings.disarm()
    assert memory[COMPLETIONS + ARMED] == 0
    complete(memory, 77)
    assert rings.spin(10) and not rings.arm()
    assert rings.receive() == (77, 1, 2, 3)
    assert word(memory, COMPLETIONS + HEAD) == 1 and rings.outstanding == 0


def test_a_full_ring_takes_no_more(rings: Rings) -> None:
    assert all(rings.submit(bytes(128)) for _ in range(256))
    assert not rings.submit(bytes(128)) and rings.outstanding == 256


def test_completions_of_nothing_are_no_protocol(rings: Rings, memory: mmap.mmap) -> None:
    rings.submit(bytes(128))
    complete(memory, 1)
    complete(memory, 2)
    with pytest.raises(OSError, match="Protocol error"):
        rings.receive()


def test_a_library_without_these_functions_is_as_good_as_none() -> None:
    assert library(ctypes.util.find_library("c")) is None


def test_a_library_that_was_named_has_to_be_there() -> None:
    with pytest.raises(OSError, match="nowhere"):
        library("/nowhere/libkvpool.so")


def test_without_a_library_steps_go_by_message(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVPOOL_LIBRARY")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    library.cache_clear()
    with daemon.pool() as pool:
        assert not pool.uses_rings
        with pytest.raises(kvpool.NotFound):
            pool.end_step(kvpool.Step(404, 1, kvpool.Model(name="m", weights_revision="1", num_layers=1)))  # fmt: skip
    library.cache_clear()
