"""One connection: which requests are outstanding, and how answers find their way back.

Nothing here waits but Core.wait(), Core.open() and Core.connect(). The plain face waits there; the
asyncio face calls turn() whenever one of descriptors() is readable.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar

import zmq
from google.protobuf.message import DecodeError

from . import wire
from .errors import Disconnected, KvpoolError, Overloaded, Timeout, error_of
from .model import Model
from .rings import Completion, Rings, library
from .session import (
    MANUAL_PUBLISH,
    MAPPED,
    STORE,
    ArenaPacket,
    Hello,
    Session,
    absent,
    directory_of,
)
from .staging import Staging

T = TypeVar("T")
U = TypeVar("U")

MAX_OUTSTANDING = 256
MAX_BATCH_BYTES = 8 << 20
MAX_REPLY_BYTES = 16 << 20
MAX_DATA_BYTES = 4 << 20  # of blocks; a daemon takes no more in a message
MAX_DEADLINE = 3600.0
GRACE = 1.0  # seconds that a daemon has beyond a request's deadline
HAS_FRAME = 1  # in an id: its answer has a data frame, also if nobody waits for it any more


@dataclass
class Answer:
    """One answer, whichever way it came."""

    reply: wire.Reply
    frame: Any = None
    """The data frame that came along (Read): a buffer."""
    arena: ArenaPacket | None = None
    """What came by the session socket (OpenArena); its descriptor is the reader's to close."""


@dataclass
class Call(Generic[T]):
    """A request to be, and what its answer means. Made by verbs.py, sent by a face."""

    request: wire.Request
    decode: Callable[[Answer], T]
    timeout: float | None = None
    frame: Any = None
    """The data frame that goes along (Write)."""
    wants_frame: bool = False
    wants_arena: bool = False
    ring: Callable[[int], bytes | None] | None = None
    """Gives the submission of an id; None: this one has to go by message."""
    keep: list[Any] = field(default_factory=list)
    """What must stay where it is until the answer, however late: arrays in staging."""
    step: int = 0
    """Of an attend: if there is no answer, its arrays are the daemon's until the step ends."""

    def then(self, change: Callable[[T], U]) -> Call[U]:
        """The same call, with another result."""
        return replace(self, decode=lambda answer: change(self.decode(answer)))  # type: ignore[arg-type, return-value]


class Pending(Generic[T]):
    """A request that was sent, or waits for flush()."""

    def __init__(self, core: Core, call: Call[T], id_: int, expires: float) -> None:
        self._core, self._call, self._expires = core, call, expires
        self.id = id_
        self._value: T | None = None
        self._error: BaseException | None = None
        self.is_done = self._is_on_ring = False
        self._on_done: Callable[[], None] | None = None

    def result(self) -> T:
        """Waits, at most for the request's deadline, and returns or raises what the verb does."""
        if not self.is_done:
            self._core.wait(self)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def _resolve(self, answer: Answer | KvpoolError) -> None:
        try:
            if isinstance(answer, KvpoolError):
                self._error = answer
            elif answer.reply.status:
                self._error = error_of(answer.reply.status, answer.reply.message)
            else:
                self._value = self._call.decode(answer)
        except Exception as error:  # noqa: BLE001 - belongs to who waits, not to who reads
            self._error = error
        self.is_done = True
        self._call.keep = []
        if self._on_done:
            self._on_done()


class Options(TypedDict, total=False):
    """How to connect: keywords of every connection. What is left out is as in DEFAULTS."""

    directory: str | Path | None
    """Of the daemon's sockets; None: $KVPOOL_DIR, or /run/kvpoold."""
    token: str | bytes
    """Of a tenant; empty: your user id says which tenant you are."""
    mapped: bool
    """You read and write K and V in mapped arenas: no steps."""
    manual_publish: bool
    """Committed steps publish only by publish()."""
    store: Literal["", "none", "prompt", "all"]
    """What is kept below the device; empty: the daemon's setting."""
    staging_bytes: int
    """Memory for queries, outputs and blocks; 0: the daemon's default."""
    connect_timeout: float
    """Seconds to retry while no daemon is there."""
    timeout: float
    """Seconds for requests that name none, up to 3600."""
    rings: bool
    """Steps by shared memory, if libkvpool is there ($KVPOOL_LIBRARY, or installed)."""
    spin: int
    """Microseconds to look at the rings before sleeping."""


DEFAULTS: Options = {
    "directory": None,
    "token": "",
    "mapped": False,
    "manual_publish": False,
    "store": "",
    "staging_bytes": 0,
    "connect_timeout": 5.0,
    "timeout": 10.0,
    "rings": True,
    "spin": 20,
}


def _hello(options: Options) -> Hello:
    token = options["token"]
    return Hello(
        options["mapped"] * MAPPED
        | options["manual_publish"] * MANUAL_PUBLISH
        | STORE[options["store"]],
        token.encode() if isinstance(token, str) else token,
        options["staging_bytes"],
    )


class Core:
    """Of an engine, or with is_operator of an operator. One thread at a time may use it."""

    def __init__(self, options: Options, is_operator: bool = False) -> None:
        if unknown := options.keys() - DEFAULTS.keys():
            raise TypeError(f"no such options: {', '.join(sorted(unknown))}")
        self.options: Options = {**DEFAULTS, **options}
        if self.options["store"] not in STORE:
            raise ValueError(f"store: none, prompt or all, not {self.options['store']!r}")
        self.is_operator = is_operator
        self.directory = directory_of(self.options["directory"])
        self.models: dict[Model, int] = {}  # registered, and the daemon's handle
        self.is_connected = False
        self.session: Session | None = None
        self.staging: Staging | None = None
        self.rings: Rings | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._outstanding: dict[int, Pending[Any]] = {}
        self._batch: list[Pending[Any]] = []
        self._batch_bytes = 0
        self._serial = 0
        # With one CPU to spin is to keep the daemon from its work.
        self._spin = self.options["spin"] if len(os.sched_getaffinity(0)) > 1 else 0
        self._arenas: dict[int, tuple[Pending[Any], wire.Reply]] = {}
        self._late: dict[int, Call[Any]] = {}  # given up, by id: what they keep is still in use

    # ---- connecting

    def open(self) -> None:
        """One attempt. Disconnected: nobody is there (yet)."""
        self.close()
        if self.is_operator:
            endpoint = self._look_for_operator()
        else:
            self.session = session = Session(self.directory, _hello(self.options))
            self.staging = Staging(session.memory, session.data_offset, session.data_bytes)
            found = library(os.environ.get("KVPOOL_LIBRARY")) if self.options["rings"] else None
            if found:
                self.rings = Rings(found, session.memory, session.daemon_event)
            endpoint = session.endpoint
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.set_hwm(4 * MAX_OUTSTANDING)
        self._socket.setsockopt(zmq.MAXMSGSIZE, 4 * MAX_REPLY_BYTES)  # what is over is seen
        self._socket.connect(endpoint)
        self.is_connected = True

    def _look_for_operator(self) -> str:
        """ZeroMQ would wait in silence for somebody to listen: look whether somebody does."""
        path = str(self.directory / "operator.sock")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except OSError as error:
                raise absent(self.directory, error) from None
        return "ipc://" + path

    def retries(self) -> Iterator[float]:
        """Seconds to pause between attempts, until the time to connect is over."""
        until, pause = time.monotonic() + self.options["connect_timeout"], 0.01
        while time.monotonic() + pause < until:
            yield pause
            pause = min(2 * pause, 0.2)

    def connect(self) -> None:
        """Opens, again and again while nobody is there, and registers what was registered."""
        pauses = self.retries()
        while True:
            try:
                self.open()
                break
            except Disconnected:
                pause = next(pauses, None)
                if pause is None:
                    raise
                time.sleep(pause)
        try:
            for call in self.registrations():
                self.submit(call).result()
        except BaseException:
            self.close()  # without them handles are void
            raise

    def registrations(self) -> list[Call[None]]:
        """What makes the models known to a new session, so that they can be used as before."""

        def of(model: Model) -> Call[None]:
            def decode(answer: Answer) -> None:
                self.models[model] = answer.reply.model.model

            return Call(wire.Request(register_model=model._request()), decode)

        return [of(model) for model in self.models]

    def close(self) -> None:
        """Ends the session; everything outstanding resolves as Disconnected. May be repeated."""
        self.is_connected = False
        if self._socket:
            self._socket.close()
        if self._context:
            self._context.term()
        if self.session:
            self.session.close()
        # self.staging stays: a verb looks its arrays up in it before submit() says Disconnected,
        # and an engine may go on making some. The next open() brings another one.
        self._socket = self._context = self.session = self.rings = None
        self._batch, self._batch_bytes = [], 0
        self._arenas.clear()
        self._late.clear()
        outstanding, self._outstanding = self._outstanding, {}
        for pending in outstanding.values():
            pending._resolve(Disconnected())

    # ---- sending

    @property
    def is_full(self) -> bool:
        return len(self._outstanding) >= MAX_OUTSTANDING

    @property
    def num_outstanding(self) -> int:
        return len(self._outstanding)

    def submit(self, call: Call[T]) -> Pending[T]:
        """Takes a request; it is sent by flush() at the latest, or by waiting for any."""
        if not self.is_connected:
            raise Disconnected()
        if self.is_full:
            raise Overloaded(f"{MAX_OUTSTANDING} requests are outstanding: wait for one first")
        timeout = self.options["timeout"] if call.timeout is None else call.timeout
        if not 0 < timeout <= MAX_DEADLINE:
            raise ValueError(f"timeout: over 0, up to {MAX_DEADLINE} seconds")
        self._serial += 1
        id_ = self._serial << 1 | (HAS_FRAME if call.wants_frame else 0)
        pending = Pending(self, call, id_, time.monotonic() + timeout + GRACE)
        pending._is_on_ring = self._by_ring(pending)
        if not pending._is_on_ring:
            call.request.id, call.request.deadline_ms = id_, max(1, int(timeout * 1000))
            self._by_message(pending)
            if not self.is_connected:  # it had to flush, and nobody takes anything any more
                raise Disconnected()
        self._outstanding[id_] = pending
        return pending

    def _by_ring(self, pending: Pending[Any]) -> bool:
        if not self.rings or not pending._call.ring:
            return False
        entry = pending._call.ring(pending.id)
        return entry is not None and self.rings.submit(entry)

    def _by_message(self, pending: Pending[Any]) -> None:
        num_bytes = pending._call.request.ByteSize() + 16
        if num_bytes > MAX_BATCH_BYTES - 64:
            raise ValueError(f"{num_bytes} bytes are more than one request may have")
        num_bytes += len(pending._call.frame or b"")
        if self._batch_bytes + num_bytes > MAX_BATCH_BYTES - 64:
            self.flush()
        self._batch.append(pending)
        self._batch_bytes += num_bytes

    def flush(self) -> None:
        """Sends what was collected, as one message."""
        if not self._batch or not self._socket:
            return
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        session = self.session
        envelope = wire.Batch(
            major=1,
            session=session.id if session else 0,
            token=session.token if session else b"",
            requests=[pending._call.request for pending in batch],
        )
        frames = [p._call.frame for p in batch if p._call.frame is not None]
        try:
            self._socket.send_multipart([envelope.SerializeToString(), *frames], zmq.NOBLOCK)
        except zmq.Again:  # a daemon that lives would have taken more than can be outstanding
            self.close()

    # ---- receiving

    def take_in(self) -> int:
        """What can be had without waiting: how many answers. Disconnects where the daemon did."""
        num = 0
        try:
            num += self._take_completions()
            while self._message():
                num += 1
        except (OSError, zmq.ZMQError, DecodeError):  # no protocol any more
            self.close()
        return num

    def _take_completions(self) -> int:
        num = 0
        while self.rings and (completion := self.rings.receive()):
            self._complete(completion)
            num += 1
        return num

    def _message(self) -> bool:
        if self._socket is None:  # closed, and poll() asks all the same
            return False
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        batch = wire.ReplyBatch.FromString(frames[0].bytes)
        if self.session and batch.boot_id and batch.boot_id != self.session.boot_id:
            self.close()  # another daemon, to which ZeroMQ connected again by itself
            return False
        data = iter(frames[1:])
        for reply in batch.replies:
            if reply.id == 0:
                self._refuse(reply)
                continue
            frame = next(data, None) if reply.id & HAS_FRAME and not reply.status else None
            self._reply(reply, frame)
        return True

    def _reply(self, reply: wire.Reply, frame: Any) -> None:
        pending = self._outstanding.get(reply.id)
        if pending is None:
            self._late.pop(reply.id, None)
            return
        if pending._call.wants_arena and not reply.status:
            self._arenas[reply.arena.arena] = pending, reply
            self._match_arenas()
            return
        del self._outstanding[reply.id]
        pending._resolve(Answer(reply, frame.buffer if frame is not None else None))

    def _refuse(self, reply: wire.Reply) -> None:
        """One message was refused as a whole, and nothing says which: none of them is answered."""
        for pending in [p for p in self._outstanding.values() if not p._is_on_ring]:
            del self._outstanding[pending.id]
            pending._resolve(error_of(reply.status, reply.message))

    def _match_arenas(self) -> None:
        """An arena's reply and its descriptor come in any order."""
        for arena, (pending, reply) in list(self._arenas.items()):
            packet = self.session.arenas.pop(arena, None) if self.session else None
            if packet is None:
                continue
            del self._arenas[arena]
            if self._outstanding.pop(pending.id, None):
                pending._resolve(Answer(reply, arena=packet))
            else:
                os.close(packet.fd)

    def _complete(self, completion: Completion) -> None:
        pending = self._outstanding.pop(completion.id, None)
        if pending is None:
            self._late.pop(completion.id, None)
            return
        reply = wire.Reply(id=completion.id, status=completion.status)
        reply.step.step, reply.step.num_rows = completion.object, completion.value
        pending._resolve(Answer(reply))

    def _expire(self) -> None:
        now = time.monotonic()
        for pending in [p for p in self._outstanding.values() if p._expires <= now]:
            del self._outstanding[pending.id]
            if pending._call.keep:
                # A copy: to resolve is to let go of what the call itself keeps.
                self._late[pending.id] = replace(pending._call)
            pending._resolve(Timeout("no answer in time: it may have been carried out"))

    def step_ended(self, step: int) -> None:
        """What attends of it that were given up occupied is ours again."""
        for id_ in [id_ for id_, call in self._late.items() if call.step == step]:
            del self._late[id_]

    # ---- waiting

    def descriptors(self) -> list[int]:
        """Readable when there may be something to take in (ZeroMQ's: edge-triggered)."""
        assert self._socket is not None
        fds = [self._socket.getsockopt(zmq.FD)]
        if self.session:
            fds += [self.session.socket.fileno(), self.session.own_event]
        return [fd for fd in fds if isinstance(fd, int)]

    def turn(self) -> float | None:
        """Sends, takes in, expires, and prepares to sleep: for how long at most, in seconds.

        None: until a descriptor is readable. 0: not at all.
        """
        self.flush()
        if self.session:
            with contextlib.suppress(BlockingIOError, OSError):
                os.eventfd_read(self.session.own_event)
            is_open = self.session.read()
            self._match_arenas()
            self.take_in()  # what was answered before the end counts
            if not is_open:
                self.close()
        else:
            self.take_in()
        self._expire()
        if self.rings and not self.rings.arm():
            return 0.0
        if not self._outstanding:
            return None
        return max(0.0, min(p._expires for p in self._outstanding.values()) - time.monotonic())

    def wait(self, pending: Pending[Any]) -> None:
        """Until it is resolved."""
        self.flush()
        if pending._is_on_ring and self.rings and self.rings.spin(self._spin):
            # The socket costs as much as a ring's round trip: it has its turn below.
            with contextlib.suppress(OSError):  # which comes again there
                self._take_completions()
        while not pending.is_done:
            timeout = self.turn()
            if pending.is_done or not self.is_connected:
                break
            self._sleep(timeout)
            if self.rings:
                self.rings.disarm()
            self.take_in()

    def poll(self, timeout: float) -> int:
        """Takes in answers, and waits so long for the first: how many requests resolved."""
        until, before = time.monotonic() + timeout, len(self._outstanding)
        while True:
            pause = self.turn()
            left = until - time.monotonic()
            if not 0 < len(self._outstanding) == before or left <= 0:
                break
            self._sleep(left if pause is None else min(pause, left))
        if self.rings:
            self.rings.disarm()
        return before - len(self._outstanding)

    def _sleep(self, timeout: float | None) -> None:
        items: list[Any] = [(self._socket, zmq.POLLIN)]
        if self.session:
            items += [(self.session.socket.fileno(), zmq.POLLIN)]
            items += [(self.session.own_event, zmq.POLLIN)]
        zmq.zmq_poll(items, -1 if timeout is None else math.ceil(timeout * 1000))
