"""GGUF files written here by hand, and what is read from them."""

import struct

import numpy as np
import pytest

from engine import gguf_file


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_bytes(pairs, tensors, version=3):
    """pairs: [(key, type, bytes)]; tensors: [(name, dims, type, bytes)], dims fastest first."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(pairs))
    for key, kind, value in pairs:
        head += string(key) + struct.pack("<I", kind) + value
    data = b""
    for name, dims, kind, raw in tensors:
        data += bytes(-len(data) % 32)
        head += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += raw
    return head + bytes(-len(head) % 32) + data


@pytest.fixture
def reader(tmp_path):
    def read(*args, **kwargs):
        (tmp_path / "x.gguf").write_bytes(gguf_bytes(*args, **kwargs))
        return gguf_file.Reader(tmp_path / "x.gguf")
    return read


def test_metadata_of_every_type(reader):
    strings = struct.pack("<IQ", 8, 2) + string("a") + string("é")
    found = reader([("text", 8, string("hello")), ("count", 4, struct.pack("<I", 7)),
                    ("least", 5, struct.pack("<i", -7)), ("eps", 6, struct.pack("<f", 0.5)),
                    ("yes", 7, b"\1"), ("long", 10, struct.pack("<Q", 1 << 40)),
                    ("strings", 9, strings),
                    ("numbers", 9, struct.pack("<IQ3i", 5, 3, 1, -2, 3))], []).metadata
    assert found == {"text": "hello", "count": 7, "least": -7, "eps": 0.5, "yes": True,
                     "long": 1 << 40, "strings": ["a", "é"], "numbers": [1, -2, 3]}


def test_dimensions_are_reversed(reader):
    values = np.arange(6, dtype=np.float32)
    found = reader([], [("w", (3, 2), gguf_file.F32, values.tobytes())]).tensor("w")
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]  # two rows out, three in


def test_q8_0_by_hand(reader):
    raw = np.float16(0.5).tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()
    found = reader([], [("w", (32, 1), gguf_file.Q8_0, raw)]).tensor("w")
    assert found[0].tolist() == [0.5 * value for value in range(-16, 16)]


def test_q4_1_by_hand(reader):
    # Byte i has value i in its low half, and value i + 16 in its high one.
    raw = np.array([0.25, -1], np.float16).tobytes() + bytes(i | (15 - i) << 4 for i in range(16))
    found = reader([], [("w", (32, 1), gguf_file.Q4_1, raw)]).tensor("w")
    assert found[0].tolist() == [i / 4 - 1 for i in [*range(16), *range(15, -1, -1)]]


def test_alignment_and_several_tensors(reader):
    one, two = np.float32([1]), np.float32([2, 3])
    found = reader([("general.alignment", 4, struct.pack("<I", 32))],
                   [("a", (1,), gguf_file.F32, one.tobytes()),
                    ("b", (2,), gguf_file.F32, two.tobytes())])
    assert found.tensor("a").tolist() == [1] and found.tensor("b").tolist() == [2, 3]


def test_other_versions_are_refused(reader):
    with pytest.raises(ValueError, match="version 3"):
        reader([], [], version=2)


def test_convert_and_load(reader, tmp_path):
    raw = np.float32([4, 5]).tobytes()
    done = []
    reader([("n", 4, struct.pack("<I", 9))],
           [("blk.0.w.weight", (2,), gguf_file.F32, raw)]).convert(tmp_path, done.append)
    metadata, weights = gguf_file.load(tmp_path)
    assert metadata == {"n": 9} and done == [1]
    assert {name: array.tolist() for name, array in weights.items()} == {"blk.0.w.weight": [4, 5]}


@pytest.mark.parametrize("kind", (6, 12, 14))
def test_other_types_through_pypi_gguf(reader, kind):
    """Sizes are what we say; a block of zeros is zeros."""
    pytest.importorskip("gguf")
    values, num_bytes = gguf_file.BLOCKS[kind]
    found = reader([], [("w", (values, 2), kind, bytes(2 * num_bytes))]).tensor("w")
    assert found.shape == (2, values) and not found.any()
