"""Steps through shared memory, by libkvpool: Python has neither atomics nor fences of its own."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import functools
import mmap
import os
import struct
from typing import NamedTuple

ENTRIES = 256
# Fields in the order of proto/ring.h: struct ring_submission, ring_row, ring_completion.
SUBMISSION = struct.Struct("<QIIQQIIQQQQQQQff24x")
ROW = struct.Struct("<QQII")
_COMPLETION = struct.Struct("<QIIQQ")
STEP, ATTEND, END_STEP = 1, 2, 3
WANT_LSE, HAS_SINKS, ABANDON = 1, 2, 4


class Completion(NamedTuple):
    """id and status of a request; of a step also its token rows and its handle."""

    id: int
    status: int
    value: int
    object: int


@functools.cache
def library(path: str | None) -> ctypes.CDLL | None:
    """libkvpool: from path ($KVPOOL_LIBRARY), or where it is installed; None: it is not there."""
    name = path or ctypes.util.find_library("kvpool")
    if not name:
        return None
    found = ctypes.CDLL(name, use_errno=True)
    # fmt: off
    rows = {
        "kvpool_ring_submit":  (ctypes.c_int,  [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]),
        "kvpool_ring_receive": (ctypes.c_int,  [ctypes.c_void_p, ctypes.c_void_p]),
        "kvpool_ring_spin":    (ctypes.c_bool, [ctypes.c_void_p, ctypes.c_uint32]),
        "kvpool_ring_arm":     (ctypes.c_bool, [ctypes.c_void_p]),
        "kvpool_ring_disarm":  (None,          [ctypes.c_void_p]),
    }
    # fmt: on
    if not all(hasattr(found, row) for row in rows):
        return None  # an older one
    for row, (result, arguments) in rows.items():
        function = getattr(found, row)
        function.restype, function.argtypes = result, arguments
    return found


class Rings:
    """The two rings of one session."""

    def __init__(self, found: ctypes.CDLL, memory: mmap.mmap, daemon_event: int) -> None:
        self._library, self._event = found, daemon_event
        self._memory = memory
        # The one way to learn the address. It may go after that: nobody closes self._memory, so the
        # mapping stays where it is as long as this object does.
        anchor = ctypes.c_char.from_buffer(memory)
        self._staging = ctypes.c_void_p(ctypes.addressof(anchor))
        self._entry = ctypes.create_string_buffer(_COMPLETION.size)
        self.outstanding = 0

    def submit(self, entry: bytes) -> bool:
        """False: the ring is full."""
        answer = self._library.kvpool_ring_submit(self._staging, self._event, entry)
        if answer == -errno.EAGAIN:
            return False
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        self.outstanding += 1
        return True

    def receive(self) -> Completion | None:
        """The next completion, if one has come."""
        if self.outstanding == 0:
            return None
        answer = self._library.kvpool_ring_receive(self._staging, self._entry)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        if answer == 0:
            return None
        self.outstanding -= 1
        return Completion(*_COMPLETION.unpack(self._entry.raw)[:4])

    def spin(self, microseconds: int) -> bool:
        """Looks so long for a completion; other Python threads run meanwhile."""
        return bool(self._library.kvpool_ring_spin(self._staging, microseconds))

    def arm(self) -> bool:
        """Before sleeping on the session's own eventfd. False: do not sleep, something came."""
        return self.outstanding == 0 or bool(self._library.kvpool_ring_arm(self._staging))

    def disarm(self) -> None:
        """After sleeping."""
        self._library.kvpool_ring_disarm(self._staging)
