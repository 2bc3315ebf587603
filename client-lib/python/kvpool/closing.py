"""What is closed at the end of a with statement."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Has close(), which may be repeated."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
