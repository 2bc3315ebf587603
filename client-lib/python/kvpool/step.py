"""A step, as its engine sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .model import Model


class Shapes(NamedTuple):
    """Of one attend's tensors; v None: MLA."""

    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...] | None
    out: tuple[int, ...]


@dataclass
class Step:
    """One forward pass that was begun. num_rows: token rows of all its sequences together."""

    handle: int
    num_rows: int
    model: Model
    missing: set[int] = field(init=False)
    """Layers that were not attended yet; with the last of them the step commits."""
    is_ended: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.missing = set(range(self.model.num_layers))

    def shapes(self) -> Shapes:
        """What attend() takes and gives."""
        model, rows = self.model, self.num_rows
        return Shapes(
            (rows, model.num_q_heads, model.k_head_dim),
            (rows, model.num_kv_heads, model.k_head_dim),
            (rows, model.num_kv_heads, model.v_head_dim) if model.v_head_dim else None,
            (rows, model.num_q_heads, model.out_dim),
        )

    def attended(self, layer: int) -> None:
        """An attend of that layer was answered."""
        self.missing.discard(layer)
        if not self.missing:
            self.is_ended = True
