"""GGUF files: a header read by struct, tensors made f32.

Layout: magic, version, counts; then key-value pairs; then a name, shape, type and offset of each
tensor; then, aligned, the data. Dimensions are listed fastest first, so they are reversed here:
arrays are (out, in). Quantised tensors are rows of small blocks with their own scales.
"""

import json
import struct
from math import prod
from pathlib import Path

import numpy as np

# Type numbers of metadata values; 8 is a string, 9 an array.
SCALARS = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?",
           10: "<Q", 11: "<q", 12: "<d"}
F32, Q4_1, Q5_0, Q8_0, Q4_K, Q6_K = 0, 3, 6, 8, 12, 14
# (values, bytes) of a block. What is in those that dequantise() has no lines for, PyPI's gguf knows.
BLOCKS = {F32: (1, 4), Q4_1: (32, 20), Q5_0: (32, 22), Q8_0: (32, 34), Q4_K: (256, 144), Q6_K: (256, 210)}


def dequantise(raw, kind):
    """Bytes of whole blocks to f32 values."""
    if kind == F32:
        return raw.view(np.float32)
    values, num_bytes = BLOCKS[kind]
    blocks = raw.reshape(-1, num_bytes)
    if kind == Q8_0:  # f16 scale, 32 signed bytes
        return blocks[:, :2].view(np.float16).astype(np.float32) * blocks[:, 2:].view(np.int8)
    if kind == Q4_1:  # f16 scale, f16 minimum, then value i and i + 16 in the two halves of a byte
        scale, least = blocks[:, :4].view(np.float16).astype(np.float32).T[:, :, None]
        halves = np.concatenate((blocks[:, 4:] & 15, blocks[:, 4:] >> 4), axis=1)
        return halves * scale + least
    from gguf import quants, GGMLQuantizationType
    return quants.dequantize(blocks, GGMLQuantizationType(kind))


class Reader:
    """metadata: by key; tensors: name -> (shape, type, offset in the file)."""

    def __init__(self, path):
        self.data = np.memmap(path, mode="r")
        magic, version, num_tensors, num_pairs = struct.unpack_from("<4sIQQ", self.data)
        if magic != b"GGUF" or version != 3:
            raise ValueError(f"{path}: no GGUF file of version 3")
        self.at = 24
        self.metadata = {self._string(): self._value(self._scalar("<I")) for _ in range(num_pairs)}
        self.tensors = {}
        for _ in range(num_tensors):
            name, num_dims = self._string(), self._scalar("<I")
            shape = tuple(self._scalar("<Q") for _ in range(num_dims))[::-1]
            self.tensors[name] = (shape, self._scalar("<I"), self._scalar("<Q"))
        alignment = self.metadata.get("general.alignment", 32)
        base = -(-self.at // alignment) * alignment
        self.tensors = {name: (shape, kind, base + offset)
                        for name, (shape, kind, offset) in self.tensors.items()}

    def _scalar(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def _string(self):
        length = self._scalar("<Q")
        self.at += length
        return self.data[self.at - length:self.at].tobytes().decode("utf-8")

    def _value(self, kind):
        if kind == 8:
            return self._string()
        if kind == 9:
            kind, count = self._scalar("<I"), self._scalar("<Q")
            return [self._value(kind) for _ in range(count)]
        return self._scalar(SCALARS[kind])

    def tensor(self, name):
        shape, kind, offset = self.tensors[name]
        values, num_bytes = BLOCKS[kind]
        raw = self.data[offset:offset + prod(shape) // values * num_bytes]
        return np.ascontiguousarray(dequantise(np.asarray(raw), kind), np.float32).reshape(shape)

    def convert(self, folder, done):
        """Writes one .npy a tensor, and then header.json, which says that all are there."""
        for name in self.tensors:
            np.save(folder / f"{name}.npy", self.tensor(name))
            done(1)
        Path(folder / "header.part").write_text(json.dumps(self.metadata), encoding="utf-8")
        Path(folder / "header.part").rename(folder / "header.json")


def load(folder):
    """(metadata, name -> mapped array) of what convert() wrote."""
    metadata = json.loads((folder / "header.json").read_text(encoding="utf-8"))
    return metadata, {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
