"""staging.py: memory comes and goes with the arrays that lie in it."""

import gc
import itertools
import mmap
import random

import numpy as np
import pytest
from kvpool.staging import Staging

DATA = 4096


@pytest.fixture
def staging() -> Staging:
    return Staging(mmap.mmap(-1, 4096 + DATA), 4096, DATA)


def test_an_array_is_the_memory_itself(staging: Staging) -> None:
    array = staging.take((2, 3), np.float32)
    array[...] = 1.0
    assert array.shape == (2, 3) and array.dtype == np.float32
    offset = staging.offset_of(array)
    assert offset == 0
    assert np.frombuffer(staging._memory, np.float32, 6, 4096).tolist() == [1.0] * 6


def test_memory_is_free_again_with_the_last_view(staging: Staging) -> None:
    array = staging.take(100, np.uint8)
    assert staging.num_free() == DATA - 128
    view = array[10:20].reshape(2, 5).T
    del array
    assert staging.num_free() == DATA - 128
    del view
    assert staging.num_free() == DATA


def test_it_outlives_the_staging(staging: Staging) -> None:
    array = staging.take(8)
    array[...] = 3
    del staging
    gc.collect()
    assert array.tolist() == [3.0] * 8


def test_used_up_says_so(staging: Staging) -> None:
    whole = staging.take(DATA, np.uint8)
    with pytest.raises(MemoryError, match="staging_bytes"):
        staging.take(1, np.uint8)
    del whole
    assert staging.take(DATA, np.uint8).size == DATA
    assert staging.take((0, 5)).shape == (0, 5)


def test_offsets_are_of_whole_arrays_in_staging_only(staging: Staging) -> None:
    array = staging.take((4, 4))
    second = staging.take((4, 4))
    assert staging.offset_of(second) == 64
    assert staging.offset_of(array[1:]) == 16
    assert staging.offset_of(array[:, 1:]) is None
    assert staging.offset_of(array.view(np.uint8)[:, 1:].reshape(-1)) is None
    assert staging.offset_of(np.zeros((4, 4), np.float32)) is None


def test_put_copies_only_what_lies_elsewhere(staging: Staging) -> None:
    array = staging.take(4)
    assert staging.put(array)[0] is array
    copy, offset = staging.put(np.arange(8, dtype=np.float16)[::2])
    assert copy.tolist() == [0, 2, 4, 6] and staging.offset_of(copy) == offset == 64


def test_random_takes_never_meet(staging: Staging) -> None:
    draw = random.Random(1)
    taken: list[np.ndarray] = []
    for _ in range(3000):
        if taken and draw.random() < 0.5:
            del taken[draw.randrange(len(taken))]
            continue
        try:
            taken.append(staging.take(draw.randrange(1, 700), np.uint8))
        except MemoryError:
            assert taken
        spans = sorted((staging.offset_of(a) or 0, a.size) for a in taken)
        for (offset, size), (following, _) in itertools.pairwise(spans):
            assert offset + size <= following
        assert staging.num_free() == DATA - sum(-(-a.size // 64) * 64 for a in taken)
    taken.clear()
    assert staging.num_free() == DATA and len(staging._free) == 1
