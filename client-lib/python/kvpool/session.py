"""The session socket: hello, welcome, file descriptors (proto/README.md, sections 2 and 7)."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from .errors import Denied, Disconnected, Unsupported, error_of

MAJOR = 1
MAPPED, MANUAL_PUBLISH, ATTACH = 1, 2, 4
STORE = {"": 0, "none": 8, "prompt": 16, "all": 32}
MAX_PACKET, MAX_TOKEN, MAX_DESCRIPTORS = 512, 128, 4

_HELLO = struct.Struct("<IHHIIQQ16s")
_WELCOME = struct.Struct("<IHH16s16sQQ128s")
_REFUSAL = struct.Struct("<IHHI256s")
_ARENA = struct.Struct("<IIQQII")
_HEADER = struct.Struct("<IIQQQQ")
HELLO_MAGIC, WELCOME_MAGIC = 0x4B565048, 0x4B565057
REFUSAL_MAGIC, ARENA_MAGIC, STAGING_MAGIC = 0x4B565052, 0x4B565041, 0x4B565347


def directory_of(directory: str | Path | None) -> Path:
    """Where the daemon's sockets are: as told, $KVPOOL_DIR, or /run/kvpoold."""
    return Path(directory or os.environ.get("KVPOOL_DIR") or "/run/kvpoold")


def absent(directory: Path, error: OSError) -> Disconnected:
    """What a socket says where no daemon is, in words."""
    why = "nobody listens there: is kvpoold running?"
    if not isinstance(error, (FileNotFoundError, ConnectionError)):
        why = error.strerror or str(error)
    return Disconnected(f"{directory}: {why}")


@dataclass(frozen=True)
class Hello:
    """What a client asks for."""

    flags: int = 0
    token: bytes = b""
    staging_bytes: int = 0
    session_id: int = 0
    session_token: bytes = bytes(16)

    def packet(self) -> bytes:
        if len(self.token) > MAX_TOKEN:
            raise ValueError(f"token: over {MAX_TOKEN} bytes")
        head = (HELLO_MAGIC, MAJOR, 0, self.flags, len(self.token))
        tail = (self.staging_bytes, self.session_id, self.session_token)
        return _HELLO.pack(*head, *tail) + self.token


@dataclass(frozen=True)
class ArenaPacket:
    """Of an arena that was opened; whoever has it closes the descriptor."""

    arena: int
    stride_bytes: int
    max_bytes: int
    is_writable: bool
    fd: int


class Session:
    """An open session socket, what the welcome said, and the descriptors that came with it."""

    def __init__(self, directory: Path, hello: Hello, timeout: float = 5.0) -> None:
        """Answers as in section 2; Disconnected: nobody is there. Waits at most timeout seconds."""
        packet = hello.packet()
        self.arenas: dict[int, ArenaPacket] = {}
        self.daemon_event = self.own_event = -1
        self.boot_id = self.token = b""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.socket.settimeout(timeout)
            try:
                self.socket.connect(str(directory / "session.sock"))
                self.socket.send(packet)
                answer, descriptors = self._receive()
            except OSError as error:
                if isinstance(error, PermissionError):
                    raise Denied(f"{directory}: {error.strerror}") from None
                raise absent(directory, error) from None  # it has the reason
            self._answer(answer, descriptors)
            self.socket.setblocking(False)
        except BaseException:
            self.close()
            raise

    def _receive(self) -> tuple[bytes, list[int]]:
        """One packet. Descriptors are not for programs that we start (recv_fds() has no such flag)."""
        room, flags = socket.CMSG_SPACE(4 * MAX_DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
        packet, controls, _, _ = self.socket.recvmsg(MAX_PACKET, room, flags)
        descriptors = [
            fd
            for level, kind, data in controls
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            for (fd,) in struct.iter_unpack("i", data[: len(data) // 4 * 4])
        ]
        return packet, descriptors

    def _answer(self, packet: bytes, descriptors: list[int]) -> None:
        magic = struct.unpack_from("<I", packet)[0] if len(packet) >= 8 else 0
        if magic == WELCOME_MAGIC and len(packet) >= _WELCOME.size and len(descriptors) == 3:
            self._welcome(packet, descriptors)
            return
        for fd in descriptors:
            os.close(fd)
        if magic == REFUSAL_MAGIC and len(packet) >= _REFUSAL.size:
            _, major, minor, status, text = _REFUSAL.unpack_from(packet)
            message = text.split(b"\0")[0].decode(errors="replace")
            raise error_of(status, message or f"the daemon speaks {major}.{minor}")
        if not packet:
            raise Disconnected("the daemon closed instead of saying welcome")
        raise Unsupported("that is no welcome: another program, or another version?")

    def _welcome(self, packet: bytes, descriptors: list[int]) -> None:
        staging, self.daemon_event, self.own_event = descriptors
        _, major, _, self.boot_id, self.token, self.id, size, endpoint = _WELCOME.unpack_from(
            packet
        )
        try:
            if major != MAJOR:
                raise Unsupported(f"the daemon speaks version {major}, this client {MAJOR}")
            self.endpoint = endpoint.split(b"\0")[0].decode()
            self.memory = mmap.mmap(staging, size)
        finally:
            os.close(staging)
        header = _HEADER.unpack_from(self.memory)
        if header[:2] != (STAGING_MAGIC, 1) or header[4] + header[5] > size:
            raise Unsupported("staging of another version")
        self.data_offset, self.data_bytes = header[4], header[5]

    def read(self) -> bool:
        """Takes in what came, without waiting. False: the daemon closed the session."""
        while True:
            try:
                packet, descriptors = self._receive()
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not packet:
                return False
            self._take(packet, descriptors)

    def _take(self, packet: bytes, descriptors: list[int]) -> None:
        if len(packet) >= _ARENA.size and len(descriptors) == 1:
            magic, arena, stride, size, is_writable, _ = _ARENA.unpack_from(packet)
            if magic == ARENA_MAGIC:
                descriptor = descriptors.pop()
                self.arenas[arena] = ArenaPacket(arena, stride, size, bool(is_writable), descriptor)
        for fd in descriptors:
            os.close(fd)

    def close(self) -> None:
        """Ends the session. Staging stays mapped for those who have arrays of it."""
        self.socket.close()
        for packet in self.arenas.values():
            os.close(packet.fd)
        self.arenas.clear()
        for fd in (self.daemon_event, self.own_event):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self.daemon_event = self.own_event = -1

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.close()
