"""Layer by layer, with the same q, k and v, the daemon answers what a dense cache of the same type
does: K and V are rounded before they are attended, and nothing else is."""

import numpy as np
import pytest

from engine import packages
from engine.cache import DaemonCache, staging_bytes
from engine.daemon import Daemon
from engine.dense import LocalCache


def farthest(model, tokens, ours, dense, chunks):
    """Both read @tokens in @chunks; the model goes on with the dense cache's answers. The largest
    difference of the two, as a part of the layer's largest V."""
    worst, at = 0.0, 0
    for cache in (ours, dense):
        cache.open(1, tokens)
    for count in chunks:
        piece = tokens[at:at + count]
        with ours.stepping([(1, piece)]) as one, dense.stepping([(1, piece)]) as other:
            def attend(*words):
                nonlocal worst
                out = other(*words)
                worst = max(worst, float(np.abs(one(*words) - out).max() / np.abs(words[-1]).max()))
                return out
            model.forward(np.array(piece), np.arange(at, at + count), attend, slice(-1, None))
        at += count
    return worst


@pytest.mark.parametrize("dtype", ("f32", "f16", "bf16"))
@pytest.mark.parametrize("name", ("tiny-llama", "tiny-gemma3", "smollm2", "gemma"))
def test_the_same_is_rounded(models, name, dtype):
    model = models(name)
    text = "tides" * 40 if name.startswith("tiny") else packages.text("alice29.txt")
    tokens = model.tokeniser.text("") + model.tokeniser.encode(text)[:150]
    chunks = (64, 30, 1, 1, 40, 1)
    with Daemon() as daemon, daemon.pool(staging_bytes=staging_bytes(model)) as pool:
        cache = DaemonCache(model, pool, dtype)
        found = farthest(model, tokens, cache, LocalCache(model, dtype), chunks)
        cache.close(1)
        other = DaemonCache(model, pool, dtype, salt=b"other")
        control = farthest(model, tokens, other, LocalCache(model), chunks)
    print(f"off by {found:.1e}, from one that does not round {control:.1e}")
    assert found < 2e-5
    assert dtype == "f32" or control > 1e-4
