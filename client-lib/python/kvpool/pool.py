"""Connections: the plain face, the asyncio face, and the deferred face of both kinds."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from . import wire
from .closing import Closing
from .core import Call, Core, Options, Pending
from .errors import Disconnected, KvpoolError
from .face import Async, Deferred, Face, Plain
from .model import Model, Tokens
from .operator_verbs import OperatorVerbs
from .staging import Staging
from .step import Step
from .verbs import EngineVerbs

T = TypeVar("T")


class _Connection(Face):
    """What all connections have."""

    _is_operator = False

    def __init__(self, **options: Unpack[Options]) -> None:
        """Options: see kvpool.Options."""
        self._core = Core(options, self._is_operator)

    @property
    def is_connected(self) -> bool:
        """As far as is known: asks nobody."""
        return self._core.is_connected

    @property
    def num_outstanding(self) -> int:
        """Requests that were not answered yet."""
        return self._core.num_outstanding


class _EngineConnection(_Connection):
    """What an engine's connections have besides."""

    @property
    def staging(self) -> Staging:
        """Memory to share arrays with the daemon. Another one after a reconnect."""
        if self._core.staging is None:
            raise Disconnected("not connected yet")
        return self._core.staging

    @property
    def uses_rings(self) -> bool:
        """Steps go by shared memory: libkvpool was found."""
        return self._core.rings is not None

    @property
    def session_id(self) -> int:
        """With session_token, what a further process needs to attach."""
        return self._core.session.id if self._core.session else 0

    @property
    def session_token(self) -> bytes:
        """Whoever has both can act as the session."""
        return self._core.session.token if self._core.session else b""


class _PlainConnection(Closing, Plain, _Connection):
    def __init__(self, **options: Unpack[Options]) -> None:
        """Connects, retrying for connect_timeout while nobody is there (then Disconnected)."""
        super().__init__(**options)
        self._core.connect()

    def reconnect(self) -> None:
        """Connects again, after Disconnected, and registers the same models.

        Sequences are gone: allocate them again (what is cached is found). Staging is new memory.
        """
        self._core.connect()

    def close(self) -> None:
        """Ends the connection, and with it whatever the session holds. May be repeated."""
        self._core.close()


class Later(Deferred, EngineVerbs):
    """Verbs that are sent and waited for later: each returns a Pending (result(), is_done).

    Requests are collected into one message until flush() or poll(), or until anybody waits. Verbs of one
    sequence are carried out in the order they were sent; steps may go by shared memory, so wait for
    other verbs of a sequence before its step, and for its step before them.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def flush(self) -> None:
        """Sends what is collected."""
        self._core.flush()

    def poll(self, timeout: float = 0.0) -> int:
        """Sends what is collected, and takes in what was answered: how many requests are done by it.

        timeout: seconds to wait for the first answer where there is none yet; 0: only looks.
        """
        return self._core.poll(timeout)


class Pool(_PlainConnection, _EngineConnection, EngineVerbs):
    """An engine's connection, which is its session: it holds what the verbs say until it closes.

    One thread at a time may use it; it does not survive a fork of the process.
    """

    @property
    def later(self) -> Later:
        """The same verbs, without waiting."""
        return Later(self._core)

    @contextlib.contextmanager
    def stepping(
        self,
        model: Model,
        rows: Mapping[int, Tokens] | Iterable[tuple[int, Tokens]],
        *,
        timeout: float | None = None,
    ) -> Iterator[Step]:
        """``with pool.stepping(model, rows) as step``: a step that is abandoned on an exception.

        Attend every layer inside; Invalid at the end where one is missing (the step is abandoned).
        """
        step = self.step(model, rows, timeout=timeout)
        try:
            yield step
            if not step.is_ended:
                self.end_step(step, timeout=timeout)
        finally:
            if not step.is_ended and self.is_connected:
                with contextlib.suppress(KvpoolError):
                    self.end_step(step, abandon=True, timeout=timeout)


class Operator(_PlainConnection, OperatorVerbs):
    """An operator's connection: no session, no staging. The file's mode says who may."""

    _is_operator = True


class _AsyncConnection(Async, _Connection):
    """Use it inside ``async with``, or connect() and close() it, in one event loop."""

    def __init__(self, **options: Unpack[Options]) -> None:
        """Options: see kvpool.Options. Connects with connect(), or with ``async with``."""
        super().__init__(**options)
        self._watched: list[int] = []
        self._timer: asyncio.Handle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()  # for a request to be answered

    async def connect(self) -> Self:
        """Connects, retrying for connect_timeout while nobody is there (then Disconnected).

        After Disconnected: again, and registers the same models. As Pool.reconnect().
        """
        self._forget()
        pauses = self._core.retries()
        while True:
            try:
                await self._open()
                break
            except Disconnected:
                pause = next(pauses, None)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        self._watched = self._core.descriptors()
        for fd in self._watched:
            asyncio.get_running_loop().add_reader(fd, self._turn)
        try:
            for call in self._core.registrations():
                await self._run(call)
        except BaseException:
            await self.close()  # without them handles are void
            raise
        return self

    reconnect = connect

    async def _open(self) -> None:
        """One attempt, in a thread. Who is cancelled meanwhile is not connected when that ends."""

        def end(opening: asyncio.Task[None]) -> None:
            has_opened = not opening.cancelled() and not opening.exception()
            if has_opened and opening is self._opening:  # the next one closes by itself
                self._core.close()

        if self._opening and not self._opening.done():
            await asyncio.wait([self._opening])
        self._opening = asyncio.create_task(asyncio.to_thread(self._core.open))
        try:
            await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            self._opening.add_done_callback(end)
            raise

    async def close(self) -> None:
        """Ends the connection, and with it whatever the session holds. May be repeated."""
        self._forget()
        self._core.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, call: Call[T]) -> T:
        pending = await self._submit(call)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_done() -> None:
            if not answered.done():
                answered.set_result(None)
            self._wake()

        pending._on_done = on_done
        self._soon(0.0)
        try:
            await answered
        except asyncio.CancelledError:
            self._cancel(pending)
            raise
        return pending.result()

    async def _submit(self, call: Call[T]) -> Pending[T]:
        """In turn, once there is room. Who was woken and does not use the room wakes the next one."""
        try:
            while self._core.is_full:
                room = asyncio.get_running_loop().create_future()
                self._waiting.append(room)
                await room
            return self._core.submit(call)
        except BaseException:
            self._wake()
            raise

    def _wake(self) -> None:
        """The first one that still waits for room."""
        while self._waiting:
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)
                return

    def _cancel(self, pending: Pending[Any]) -> None:
        """Whoever waited was cancelled: the daemon need not go on."""
        if not pending.is_done and not self._core.is_full and self._core.is_connected:
            request = wire.Request(cancel=wire.Cancel(request=pending.id))
            self._core.submit(Call(request, lambda answer: None))._on_done = self._wake
            self._soon(0.0)

    def _soon(self, seconds: float | None) -> None:
        if self._timer:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds, self._turn)

    def _turn(self) -> None:
        pause = self._core.turn()
        if not self._core.is_connected:
            self._forget()
        else:
            self._soon(pause)

    def _forget(self) -> None:
        for fd in self._watched:
            asyncio.get_running_loop().remove_reader(fd)
        self._watched = []
        if self._timer:
            self._timer.cancel()
        self._timer = None


class AsyncPool(_AsyncConnection, _EngineConnection, EngineVerbs):
    """Pool for asyncio: the same verbs, awaited. What is asked in one turn goes as one message.

    A task that is cancelled while it waits cancels its request.
    """

    @contextlib.asynccontextmanager
    async def stepping(
        self,
        model: Model,
        rows: Mapping[int, Tokens] | Iterable[tuple[int, Tokens]],
        *,
        timeout: float | None = None,
    ) -> AsyncIterator[Step]:
        """As Pool.stepping()."""
        step = await self.step(model, rows, timeout=timeout)
        try:
            yield step
            if not step.is_ended:
                await self.end_step(step, timeout=timeout)
        finally:
            if not step.is_ended and self.is_connected:
                with contextlib.suppress(KvpoolError):
                    await self.end_step(step, abandon=True, timeout=timeout)


class AsyncOperator(_AsyncConnection, OperatorVerbs):
    """Operator for asyncio."""

    _is_operator = True
