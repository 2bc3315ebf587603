"""Staging: memory that the daemon shares with one session, handed out as numpy arrays.

An array that Staging.take() returned, or any view of it, can be given to attend(), write() and
read() without a copy. Its memory is free again when the last view is gone: nobody has to give it
back. It stays readable after the session ended, for as long as somebody has it.
"""

from __future__ import annotations

import bisect
import math
import mmap
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 64


class _Span:
    """Keeps a piece of staging taken for as long as an array needs it."""

    def __init__(self, staging: Staging, offset: int, num_bytes: int) -> None:
        self._staging, self._piece = staging, (offset, num_bytes)
        self.__array_interface__ = {
            "version": 3,
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (staging.address + offset, False),
        }

    def __del__(self) -> None:
        # Perhaps in the middle of take(), or in another thread: only what is atomic.
        self._staging._returned.append(self._piece)


class Staging:
    """The data region of one session; offsets count from its start, in bytes."""

    def __init__(self, memory: mmap.mmap, data_offset: int, data_bytes: int) -> None:
        self._memory = memory  # mapped as long as this, or a span, is there
        whole = np.frombuffer(memory, np.uint8)
        self.address = whole.ctypes.data + data_offset
        self.num_bytes = data_bytes
        self._free = [(0, data_bytes)]  # (offset, bytes), ascending, never touching
        self._returned: deque[tuple[int, int]] = deque()

    def take(self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """A new array in staging, with whatever was there before. MemoryError: no room for it."""
        wanted = np.dtype(dtype)
        num_bytes = math.prod(shape if isinstance(shape, tuple) else (shape,)) * wanted.itemsize
        if num_bytes == 0:
            return np.empty(shape, wanted)
        rounded = -(-num_bytes // ALIGNMENT) * ALIGNMENT
        offset = self._find(rounded)
        whole: NDArray[np.uint8] = np.asarray(_Span(self, offset, rounded))
        return whole[:num_bytes].view(wanted).reshape(shape)

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """Where it lies in staging; None: elsewhere, or with gaps, or not aligned to 4."""
        offset = array.ctypes.data - self.address
        if not 0 <= offset <= self.num_bytes - array.nbytes:
            return None
        return offset if array.flags.c_contiguous and offset % 4 == 0 else None

    def put(self, array: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """The array itself if it lies in staging, else a copy that does; and its offset."""
        offset = self.offset_of(array)
        if offset is not None:
            return array, offset
        copy = self.take(array.shape, array.dtype)
        copy[...] = array
        return copy, self.offset_of(copy) or 0

    def num_free(self) -> int:
        """Bytes that nobody has, perhaps in pieces."""
        self._collect()
        return sum(num_bytes for _, num_bytes in self._free)

    def _find(self, num_bytes: int) -> int:
        self._collect()
        for i, (offset, room) in enumerate(self._free):
            if room < num_bytes:
                continue
            if room == num_bytes:
                del self._free[i]
            else:
                self._free[i] = (offset + num_bytes, room - num_bytes)
            return offset
        raise MemoryError(
            f"no {num_bytes} bytes free in {self.num_bytes} of staging: let arrays of it go, "
            "or connect with more staging_bytes"
        )

    def _collect(self) -> None:
        while self._returned:
            offset, num_bytes = self._returned.popleft()
            i = bisect.bisect(self._free, (offset, 0))
            if i < len(self._free) and offset + num_bytes == self._free[i][0]:
                num_bytes += self._free.pop(i)[1]
            if i > 0 and sum(self._free[i - 1]) == offset:
                i -= 1
                first = self._free.pop(i)
                offset, num_bytes = first[0], first[1] + num_bytes
            self._free.insert(i, (offset, num_bytes))
