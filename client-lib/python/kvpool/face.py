"""How a verb is written once, and read three ways.

A verb is a method that returns a Call. Read through a plain face it becomes a method that returns
the result, through an asyncio face a coroutine function, through a deferred face a method that
returns a Pending.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from .core import Call, Core, Pending

P = ParamSpec("P")
T = TypeVar("T")


class Face:
    """One way to wait for answers."""

    _core: Core


class Plain(Face):
    """A verb returns its result, or raises."""

    def _run(self, call: Call[T]) -> T:
        return self._core.submit(call).result()


class Async(Face):
    """A verb is awaited."""

    async def _run(self, call: Call[T]) -> T:
        raise NotImplementedError


class Deferred(Face):
    """A verb is sent, and its result is asked for later."""

    def _run(self, call: Call[T]) -> Pending[T]:
        return self._core.submit(call)


class verb(Generic[P, T]):
    """Makes a method that builds a Call into one that does what its face does with calls."""

    def __init__(self, build: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, face: None, owner: type) -> Callable[Concatenate[Any, P], Call[T]]: ...
    @overload
    def __get__(self, face: Plain, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, face: Async, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, face: Deferred, owner: type) -> Callable[P, Pending[T]]: ...
    def __get__(self, face: Any, owner: type) -> Any:
        if face is None:
            return self._build
        build, run = self._build, face._run

        def bound(*args: Any, **kwargs: Any) -> Any:
            return run(build(face, *args, **kwargs))

        bound.__doc__, bound.__name__ = build.__doc__, build.__name__
        bound.__wrapped__ = build.__get__(face)  # type: ignore[attr-defined]
        return bound
