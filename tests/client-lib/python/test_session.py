"""session.py against a socket that plays the daemon, packet by packet (proto/README.md, section 2)."""

import os
import socket
import struct
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import kvpool
import pytest
from kvpool.session import Hello, Session


class Peer:
    """Answers one hello, then whatever the test sends."""

    def __init__(self, folder: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(folder / "session.sock"))
        self.listener.listen()
        self.hello = b""
        self.connection: socket.socket | None = None

    def answers(self, packet: bytes, fds: list[int]) -> threading.Thread:
        def run() -> None:
            self.connection, _ = self.listener.accept()
            self.hello = self.connection.recv(512)
            socket.send_fds(self.connection, [packet], fds)
            if not packet:
                self.connection.close()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    peer = Peer(tmp_path)
    yield peer
    peer.listener.close()
    if peer.connection:
        peer.connection.close()


@pytest.fixture
def count_fds() -> Iterator[Callable[[], int]]:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    return count  # type: ignore[return-value]


def refusal(major: int, status: int, message: bytes) -> bytes:
    return struct.pack("<IHHI256s", 0x4B565052, major, 0, status, message)


def staging(magic: int = 0x4B565347, version: int = 1) -> int:
    fd = os.memfd_create("staging")
    os.write(fd, struct.pack("<IIQQQQ", magic, version, 4096, 36864, 45056, 4096))
    os.ftruncate(fd, 45056 + 4096)
    return fd


def welcome(major: int = 1, size: int = 45056 + 4096) -> bytes:
    head = struct.pack("<IHH16s16s", 0x4B565057, major, 0, b"b" * 16, b"t" * 16)
    return head + struct.pack("<QQ128s", 77, size, b"ipc:///nowhere")


def test_hello_is_the_48_bytes_of_the_protocol(peer: Peer, tmp_path: Path) -> None:
    thread = peer.answers(refusal(1, 16, b"who are you?"), [])
    with pytest.raises(kvpool.Denied, match="who are you"):
        Session(tmp_path, Hello(3, b"secret", 1 << 20))
    thread.join()
    head = b"HPVK" + bytes([1, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0])
    assert peer.hello == head + bytes(8 + 16) + b"secret"


def test_a_welcome_is_taken_apart(peer: Peer, tmp_path: Path) -> None:
    fd, events = staging(), [os.eventfd(0), os.eventfd(0)]
    peer.answers(welcome(), [fd, *events]).join(0)
    session = Session(tmp_path, Hello())
    assert (session.id, session.token, session.boot_id) == (77, b"t" * 16, b"b" * 16)
    assert session.endpoint == "ipc:///nowhere"
    assert (session.data_offset, session.data_bytes) == (45056, 4096)
    assert session.read()
    assert peer.connection
    peer.connection.close()
    assert not session.read()
    session.close()
    session.close()
    for each in (fd, *events):
        os.close(each)


def test_arenas_are_kept_until_they_are_asked_for(
    peer: Peer, tmp_path: Path, count_fds: Callable[[], int]
) -> None:
    fd, events = staging(), [os.eventfd(0), os.eventfd(0)]
    peer.answers(welcome(), [fd, *events])
    session = Session(tmp_path, Hello())
    assert peer.connection
    packet = struct.pack("<IIQQII", 0x4B565041, 5, 8192, 1 << 20, 1, 0)
    before = count_fds()
    socket.send_fds(peer.connection, [packet + b"of a newer minor"], [fd])
    socket.send_fds(peer.connection, [b"nonsense"], [fd])
    assert session.read()
    assert count_fds() == before + 1
    arena = session.arenas[5]
    assert (arena.stride_bytes, arena.max_bytes, arena.is_writable) == (8192, 1 << 20, True)
    session.close()
    for each in (fd, *events):
        os.close(each)


@pytest.mark.parametrize(
    ("packet", "error", "words"),
    [
        (refusal(7, 15, b"this one speaks 7.0"), kvpool.Unsupported, "7.0"),
        (refusal(1, 7, b""), kvpool.Limit, "1.0"),
        (refusal(1, 99, b"new"), kvpool.KvpoolError, "new"),
        (b"", kvpool.Disconnected, "closed"),
        (b"short", kvpool.Unsupported, "no welcome"),
        (welcome()[:-1], kvpool.Unsupported, "no welcome"),
    ],
)
def test_what_is_no_welcome_says_why(
    peer: Peer, tmp_path: Path, packet: bytes, error: type, words: str, count_fds: Callable[[], int]
) -> None:
    before = count_fds()
    peer.answers(packet, []).join(0)
    with pytest.raises(error, match=words):
        Session(tmp_path, Hello())
    if peer.connection:
        peer.connection.close()
    assert count_fds() <= before + 1


@pytest.mark.parametrize(
    ("packet", "make"),
    [
        (welcome(major=2), staging),
        (welcome(), lambda: staging(magic=1)),
        (welcome(), lambda: staging(version=2)),
    ],
)
def test_other_versions_are_refused_and_leak_nothing(
    peer: Peer, tmp_path: Path, packet: bytes, make: Callable[[], int], count_fds: Callable[[], int]
) -> None:
    fds = [make(), os.eventfd(0), os.eventfd(0)]
    before = count_fds()
    peer.answers(packet, fds)
    with pytest.raises(kvpool.Unsupported):
        Session(tmp_path, Hello())
    assert count_fds() <= before + 1  # the peer's end
    for fd in fds:
        os.close(fd)


def test_nobody_there(tmp_path: Path) -> None:
    for connection in (kvpool.Pool, kvpool.Operator):
        with pytest.raises(kvpool.Disconnected, match="is kvpoold running") as raised:
            connection(directory=tmp_path, connect_timeout=0.05)
        # One traceback: the socket's own error would say less.
        assert len(traceback.format_exception(raised.value)) == len(
            traceback.format_exception(raised.value, chain=False)
        )


def test_a_token_that_is_too_long_is_not_sent(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="token"):
        kvpool.Pool(directory=tmp_path, token="x" * 129)


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(TypeError, match="retries"):
        kvpool.Pool(retries=3)  # type: ignore[call-arg]
