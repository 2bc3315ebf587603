"""What requests are made of: models, prompts, tokens, and how K and V lie in a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import ArrayLike, NDArray

from . import wire

Tokens = ArrayLike
"""Token ids: a list of ints or an integer array of one dimension, each below 2**32."""

F32, F16, BF16, OPAQUE = 1, 2, 3, 4
"""Types of values, as Model.dtype. numpy has no bfloat16: such arrays are uint16 (bf16_from_f32)."""

DTYPES: Mapping[int, np.dtype[Any]] = {
    F32: np.dtype("<f4"),
    F16: np.dtype("<f2"),
    BF16: np.dtype("<u2"),
    OPAQUE: np.dtype("u1"),
}


def dtype_code(dtype: np.dtype[Any]) -> int:
    """F32, F16 or BF16 of an array's dtype (uint16, or ml_dtypes' bfloat16); ValueError of others."""
    for code in (F32, F16, BF16):
        if dtype == DTYPES[code] or (code == BF16 and dtype.name == "bfloat16"):
            return code
    raise ValueError(f"{dtype} is none of float32, float16, uint16 (bfloat16)")


def bf16_from_f32(values: ArrayLike) -> NDArray[np.uint16]:
    """Rounds to the nearest bfloat16, ties to even, as uint16. NaN stays NaN."""
    given = np.ascontiguousarray(values, dtype=np.float32)
    bits = given.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(given), np.uint16(0x7FC0), rounded).reshape(given.shape)


def f32_from_bf16(values: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values, exactly."""
    return (np.ascontiguousarray(values, np.uint16).astype(np.uint32) << 16).view(np.float32)


def token_array(tokens: Tokens) -> NDArray[np.uint32]:
    """Checks and converts: one dimension, whole numbers, 0 ... 2**32 - 1."""
    given = np.asarray(tokens)
    if given.size == 0:
        return np.empty(0, "<u4")
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise ValueError("tokens: wanted whole numbers in one dimension")
    if given.dtype != np.dtype("<u4"):
        if int(given.min()) < 0 or int(given.max()) >= 1 << 32:
            raise ValueError("tokens: each is 0 ... 2**32 - 1")
        given = given.astype("<u4")
    return np.ascontiguousarray(given)


@dataclass(frozen=True)
class LayerGroup:
    """Layers that share one block table. window: tokens that a query sees, itself included; 0: all."""

    layers: tuple[int, ...]
    window: int = 0


@dataclass(frozen=True, kw_only=True)
class Model:
    """A geometry and the weights it belongs to; engines share only what is equal in all of it.

    Without groups all layers are one group of full attention. v_head_dim 0 with mla_v_dim: V is a
    prefix of K (MLA). dtype OPAQUE: blocks of opaque_block_bytes that are stored but not attended.
    """

    name: str
    weights_revision: str
    """Names the weights' content: a commit, a digest."""
    num_layers: int
    num_q_heads: int = 0
    num_kv_heads: int = 0
    k_head_dim: int = 0
    v_head_dim: int = 0
    mla_v_dim: int = 0
    dtype: int = F32
    """Of K and V in blocks: F32, F16, BF16 or OPAQUE. Attends may bring another one."""
    groups: tuple[LayerGroup, ...] = ()
    block_tokens: int = 16
    rope_kind: str = ""
    rope_theta: float = 0.0
    rope_dims: int = 0
    rope_scaling: str = ""
    tp_ranks: int = 1
    layout_name: str = ""
    layout_version: int = 0
    opaque_block_bytes: int = 0

    @cached_property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """The groups, also where none were given."""
        return self.groups or (LayerGroup(tuple(range(self.num_layers))),)

    @property
    def out_dim(self) -> int:
        """Values of one head of an attend's output."""
        return self.v_head_dim or self.mla_v_dim

    def _request(self) -> wire.RegisterModel:
        groups = [
            wire.LayerGroup(window=g.window, layers=np.asarray(g.layers, "<u2").tobytes())
            for g in self.layer_groups
        ]
        same = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "groups"}
        return wire.RegisterModel(groups=groups, **same)

    def kv_views(
        self, blocks: NDArray[Any], group: int = 0
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """K and V of blocks, without copies.

        blocks: uint8 ``[block][at least the bytes of a block]``, as read() gives them and an arena
        has them. Returns k ``[block][layer][kv_head][token][k_head_dim]`` and v likewise (None: MLA,
        whose k is ``[block][layer][token][k_head_dim]``), in the model's dtype.
        """
        if self.dtype == OPAQUE:
            raise ValueError("blocks of an opaque model have no K and V that anybody else knows")
        dtype, layers = DTYPES[self.dtype], len(self.layer_groups[group].layers)
        is_mla = self.v_head_dim == 0
        k_values = (1 if is_mla else self.num_kv_heads) * self.block_tokens * self.k_head_dim
        v_values = self.num_kv_heads * self.block_tokens * self.v_head_dim
        layer_bytes = (k_values + v_values) * dtype.itemsize
        each = (len(blocks), layers)
        strides = (blocks.strides[0], layer_bytes)

        def view(first: int, heads: tuple[int, ...], dim: int) -> NDArray[Any]:
            shape = (*heads, self.block_tokens, dim)
            inner = np.empty(shape, dtype).strides
            start = blocks[:, first : layers * layer_bytes].view(dtype)
            can_write = blocks.flags.writeable
            return as_strided(start, each + shape, strides + inner, writeable=can_write)

        if is_mla:
            return view(0, (), self.k_head_dim), None
        heads = (self.num_kv_heads,)
        k = view(0, heads, self.k_head_dim)
        return k, view(k_values * dtype.itemsize, heads, self.v_head_dim)


@dataclass(frozen=True)
class ModelShape:
    """What a registration answers; one entry for each layer group."""

    block_bytes: tuple[int, ...]
    stride_bytes: tuple[int, ...]
    """From one slot to the next."""
    slots_per_granule: tuple[int, ...]


@dataclass(frozen=True)
class Extra:
    """What else K and V of one block depend on, such as an image's digest and its offset."""

    block: int
    bytes: bytes


@dataclass(frozen=True)
class Prompt:
    """Tokens, and what separates them from the same tokens of others.

    shared_domain: what is cached there may be used. fill_domain: new blocks go there (fillers only).
    raw: a match may include the last token. Extras: ascending blocks.
    """

    model: Model
    tokens: Tokens
    shared_domain: str = ""
    fill_domain: str = ""
    salt: bytes = b""
    adapter: str = ""
    adapter_generation: int = 0
    extras: Sequence[Extra] = ()
    raw: bool = False

    def _request(self, handle: int) -> wire.Prompt:
        return wire.Prompt(
            model=handle,
            tokens=token_array(self.tokens).tobytes(),
            shared_domain=self.shared_domain,
            fill_domain=self.fill_domain,
            salt=self.salt,
            adapter=self.adapter,
            adapter_generation=self.adapter_generation,
            extras=[wire.Extra(block=e.block, bytes=e.bytes) for e in self.extras],
            raw=self.raw,
        )


@dataclass(frozen=True)
class Table:
    """Of one layer group: slots[i], generations[i] of block i. Slot 0: it left the window.

    The first num_shared lie in the shared domain's arena, the rest in your own.
    """

    slots: NDArray[np.uint32]
    generations: NDArray[np.uint32]
    num_shared: int


@dataclass(frozen=True)
class Matched:
    """Tokens. matched: cached; arriving: so many after them another sequence is filling.

    below: of the matched ones, those with a block that is not on the device (yet).
    """

    matched: int
    arriving: int
    below: int = 0


@dataclass(frozen=True)
class Prefetched:
    """Tokens. matched: cached; present: leading ones on the device; coming: on their way behind them."""

    matched: int
    present: int
    coming: int


@dataclass(frozen=True)
class State:
    """A sequence after a verb. Counts are tokens; tables only where asked for, one a group.

    below: of the matched tokens, those that had to be fetched from below the device.
    """

    matched: int
    arriving: int
    length: int
    tables: tuple[Table, ...]
    below: int = 0
