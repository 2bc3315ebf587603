"""model.py: what is sent, and how blocks are read; right values by hand."""

import kvpool
import numpy as np
import pytest
from conftest import toy_model
from kvpool.model import dtype_code, token_array


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1.0, 0x3F80),
        (-2.0, 0xC000),
        (1.0 + 2**-8, 0x3F80),  # a tie: to even, down
        (1.0 + 3 * 2**-8, 0x3F82),  # a tie: to even, up
        (1.0 + 2**-8 + 2**-20, 0x3F81),
        (3.4e38, 0x7F80),  # over the largest: infinity
        (np.inf, 0x7F80),
        (np.nan, 0x7FC0),
        (-0.0, 0x8000),
    ],
)
def test_bf16_rounds_to_nearest_even(value: float, bits: int) -> None:
    assert kvpool.bf16_from_f32([value])[0] == bits


def test_bf16_back_is_exact() -> None:
    bits = np.array([[0x3F80, 0xC000], [0x0001, 0x7F80]], np.uint16)
    back = kvpool.f32_from_bf16(bits)
    assert back.shape == (2, 2) and back[0].tolist() == [1.0, -2.0]
    assert back[1, 0] == 2.0**-133
    assert (kvpool.bf16_from_f32(back) == bits).all()


@pytest.mark.parametrize(
    "tokens",
    [[1, 2], (1, 2), np.array([1, 2]), np.array([1, 2], np.uint8), np.array([1, 9, 2, 9], "<u4")[::2]],
)  # fmt: skip
def test_tokens_may_be_any_whole_numbers(tokens: object) -> None:
    assert token_array(tokens).tobytes() == bytes([1, 0, 0, 0, 2, 0, 0, 0])  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", [[-1], [1 << 32], [1.5], ["a"], [[1]], np.array(1)])
def test_tokens_may_not_be_anything_else(tokens: object) -> None:
    with pytest.raises((ValueError, OverflowError)):
        token_array(tokens)  # type: ignore[arg-type]


def test_largest_token_and_none() -> None:
    assert token_array([(1 << 32) - 1]).tobytes() == b"\xff" * 4
    assert token_array([]).size == 0


def test_dtypes_of_attends() -> None:
    codes = [dtype_code(np.dtype(t)) for t in (np.float32, np.float16, np.uint16)]
    assert codes == [kvpool.F32, kvpool.F16, kvpool.BF16]
    with pytest.raises(ValueError, match="float64"):
        dtype_code(np.dtype(np.float64))


def test_registration_says_layers_as_u16() -> None:
    group = kvpool.LayerGroup((0, 258), window=9)
    model = toy_model(num_layers=259, groups=(group, kvpool.LayerGroup(tuple(range(1, 258)))))
    wanted = model._request()
    assert (wanted.groups[0].layers, wanted.groups[0].window) == (b"\x00\x00\x02\x01", 9)
    assert len(wanted.groups[1].layers) == 2 * 257
    assert (wanted.name, wanted.num_layers, wanted.block_tokens) == ("toy", 259, 16)
    assert toy_model()._request().groups[0].layers == b"\x00\x00\x01\x00"


def test_kv_views_are_the_layout_of_a_block() -> None:
    """[layer][K,V][kv_head][token][dim], the stride larger than the block."""
    model = toy_model(k_head_dim=3, v_head_dim=5, block_tokens=4, num_layers=2)
    values = 2 * (2 * 4 * 3 + 2 * 4 * 5)
    blocks = np.zeros((2, values * 4 + 64), np.uint8)
    floats = blocks[:, : values * 4].view(np.float32)
    floats[...] = np.arange(2 * values).reshape(2, values)
    k, v = model.kv_views(blocks)
    assert v is not None
    assert k.shape == (2, 2, 2, 4, 3) and v.shape == (2, 2, 2, 4, 5)
    assert k[0, 0, 0, 0, 0] == 0 and k[0, 0, 1, 2, 1] == 1 * 12 + 2 * 3 + 1
    assert v[0, 0, 0, 0, 0] == 24 and v[0, 0, 1, 3, 4] == 24 + 20 + 3 * 5 + 4
    assert k[0, 1, 0, 0, 0] == 64 and k[1, 0, 0, 0, 0] == values
    k[1, 1, 1, 3, 2] = -7
    assert floats[1, 64 + 23] == -7


def test_kv_views_of_mla_are_k_alone_and_read_only_stays_so() -> None:
    model = toy_model(k_head_dim=6, v_head_dim=0, mla_v_dim=4, num_kv_heads=1, block_tokens=4)
    blocks = np.arange(1 * 2 * 4 * 6, dtype=np.float32).view(np.uint8).reshape(1, -1)
    blocks.flags.writeable = False
    k, v = model.kv_views(blocks)
    assert v is None and k.shape == (1, 2, 4, 6) and k[0, 1, 2, 3] == 24 + 15
    assert not k.flags.writeable
