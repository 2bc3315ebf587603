"""What can go wrong: one exception class for each status of the protocol.

This file is the table: code, what it means and what to do, and whether the same request, unchanged,
may succeed later. A verb that raises one of these changed nothing, with two exceptions: after
``Timeout`` and ``Disconnected`` there may be no answer at all, and then the request may have been
carried out. ``except KvpoolError`` takes all; ``Timeout`` is also a ``TimeoutError``,
``Disconnected`` also a ``ConnectionError``. Arguments that cannot be sent at all raise ``ValueError``
or ``TypeError`` before anything is sent.
"""

from __future__ import annotations

from typing import ClassVar


class KvpoolError(Exception):
    """An answer other than OK. Of a status that this version does not know: this class itself."""

    code: ClassVar[int] = -1
    text: ClassVar[str] = "a status of a newer daemon: treat it as a refusal, or update the client"
    may_retry: ClassVar[bool] = False
    status: int
    """The code as it came."""

    def __init__(self, message: str = "", status: int | None = None) -> None:
        super().__init__(message or self.text)
        self.status = self.code if status is None else status

    def __init_subclass__(
        cls, code: int | None = None, text: str = "", may_retry: bool = False
    ) -> None:
        super().__init_subclass__()
        if code is None:
            return  # an engine's own, of one of these
        cls.code, cls.text, cls.may_retry = code, text, may_retry
        cls.__doc__ = text
        ERRORS[code] = cls


ERRORS: dict[int, type[KvpoolError]] = {}
"""The class of each code."""


def error_of(status: int, message: str = "") -> KvpoolError:
    """The exception of a status that is not 0."""
    return ERRORS.get(status, KvpoolError)(message, status)


# fmt: off
class NotFound(KvpoolError, code=1, text="no such model, domain, sequence, step, session or request of yours"): ...
class Exists(KvpoolError, code=2, text="the name is taken: choose another one"): ...
class Invalid(KvpoolError, code=3, text="not in this state, or not with these arguments"): ...
class NeverFits(KvpoolError, code=4, text="more than the empty pool or your limit can hold: ask for less"): ...
class Quota(KvpoolError, code=5, text="your limit is in the way: release sequences, or have the limit raised", may_retry=True): ...
class NoBlocks(KvpoolError, code=6, text="no block can be had now: retry after a release", may_retry=True): ...
class Limit(KvpoolError, code=7, text="a cap of the daemon's configuration is reached: release something, or have it raised", may_retry=True): ...
class Stale(KvpoolError, code=8, text="of an earlier daemon, generation or epoch: begin anew"): ...
class Draining(KvpoolError, code=9, text="no new sequences are taken: use another node, or wait", may_retry=True): ...
class Busy(KvpoolError, code=10, text="the sequence is in an open step, or the machine is short of memory for it: retry later", may_retry=True): ...
class Miss(KvpoolError, code=11, text="what was waited for will not come: fill it yourself"): ...
class Timeout(KvpoolError, TimeoutError, code=12, text="the deadline passed and the request was given up", may_retry=True): ...
class Failed(KvpoolError, code=13, text="a copy or a device failed and the request was undone: see the daemon's log", may_retry=True): ...
class Malformed(KvpoolError, code=14, text="cannot be read, or is over a cap: mend the client"): ...
class Unsupported(KvpoolError, code=15, text="this daemon does not speak this version, verb or option"): ...
class Denied(KvpoolError, code=16, text="no tenant for these credentials, or not an operator: see the daemon's configuration"): ...
class Overloaded(KvpoolError, code=17, text="more requests outstanding than you have credits: wait for replies", may_retry=True): ...
class Cancelled(KvpoolError, code=18, text="given up because you cancelled it"): ...
class Disconnected(KvpoolError, ConnectionError, code=19, text="the daemon is gone, and with it what this session held: reconnect and begin anew"): ...
# fmt: on
