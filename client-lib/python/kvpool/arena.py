"""Arenas: the memory of blocks, mapped, as numpy arrays."""

from __future__ import annotations

import mmap
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .closing import Closing
from .model import Model
from .session import ATTACH, Hello, Session, directory_of


class Arena(Closing):
    """Of one (domain, model, group). Slot s, 1, 2, ..., is blocks[s - 1].

    Touch only slots of your sequences' tables: others may have no memory (SIGBUS). Hold the sequence
    for as long as you read. close() unmaps once no array of it is left.
    """

    def __init__(
        self,
        fd: int,
        number: int,
        stride_bytes: int,
        num_bytes: int,
        is_writable: bool,
        model: Model,
        group: int = 0,
    ) -> None:
        """Of what another process opened: fd came from it and is the arena's from now on."""
        self.fd, self.number = fd, number
        self.stride_bytes, self.num_bytes = stride_bytes, num_bytes
        self.is_writable, self.model, self.group = is_writable, model, group
        access = mmap.PROT_READ | (mmap.PROT_WRITE if is_writable else 0)
        self._memory: mmap.mmap | None
        try:
            self._memory = mmap.mmap(fd, num_bytes, mmap.MAP_SHARED, access)
        except BaseException:
            os.close(fd)
            raise

    @property
    def blocks(self) -> NDArray[np.uint8]:
        """uint8 ``[slot - 1][stride_bytes]``; read-only where the arena is."""
        if self._memory is None:
            raise ValueError("the arena is closed")
        whole = np.frombuffer(self._memory, np.uint8)
        num_slots = len(whole) // self.stride_bytes
        return whole[: num_slots * self.stride_bytes].reshape(num_slots, self.stride_bytes)

    def kv(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """K and V of all slots as views: Model.kv_views() of blocks."""
        return self.model.kv_views(self.blocks, self.group)

    def close(self) -> None:
        """May be repeated. Arrays that somebody still has stay good."""
        if self._memory is not None:
            self._memory = None  # unmapped with its last array
            os.close(self.fd)
            self.fd = -1


class Attachment(Closing):
    """A further process of a mapped session, such as a worker of a scheduler.

    Attach before mapping what the session opened (Arena(...)), close after the last array of it is
    gone: slots that are taken from the session are reused only then.
    """

    def __init__(
        self, session_id: int, session_token: bytes, directory: str | Path | None = None
    ) -> None:
        """NotFound: no such session, or another user's. Limit, Draining."""
        hello = Hello(ATTACH, session_id=session_id, session_token=session_token)
        self._session = Session(directory_of(directory), hello)

    @property
    def socket(self) -> socket.socket:
        """Readable when the session ended."""
        return self._session.socket

    def close(self) -> None:
        """May be repeated."""
        self._session.close()
