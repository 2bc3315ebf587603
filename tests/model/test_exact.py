"""Answers over the daemon are those of a dense cache of the same type, token for token, whatever happens
in between."""

import functools
import signal

import pytest

from engine.cache import DaemonCache, staging_bytes
from engine.daemon import Daemon, take_all
from play import compare, everything, trace_of

TINY = ("tiny-llama", "tiny-gemma3")
REAL = ("smollm2", "gemma")
DTYPES = ("f32", "f16", "bf16")
LENGTHS = (1, 2, 15, 16, 17, 100, 40, 333)

# What may happen to what is cached: settings of the daemon, and how it is stopped and started in between.
REGIMES = {
    "plain": ({}, None),
    "evicted": ({"pool_bytes": "SMALL"}, None),
    "host": ({"pool_bytes": "SMALL", "host_tier_bytes": "64MiB", "store_default": "all"}, None),
    "disk": ({"pool_bytes": "SMALL", "disk_directory": "DISK", "disk_max_bytes": "256MiB",
              "disk_granule_bytes": "1MiB", "disk_min_block_bytes": "4KiB",
              "store_default": "all"}, None),
    "stopped": ({}, signal.SIGTERM),
    "killed": ({}, signal.SIGKILL),
    "disk, killed": ({"pool_bytes": "SMALL", "disk_directory": "DISK", "disk_max_bytes": "256MiB",
                      "disk_granule_bytes": "1MiB", "disk_min_block_bytes": "4KiB",
                      "store_default": "all"}, signal.SIGKILL),
}


class Bed:
    """A daemon, an engine's connection and a stranger's; disturb() is what its regime does."""

    def __init__(self, regime, small, roomy, tmp_path):
        settings, self.how = REGIMES[regime]
        words = {"SMALL": small, "DISK": str(tmp_path / "disk")}
        settings = {key: words.get(value, value) for key, value in settings.items()}
        if "disk_directory" in settings:
            (tmp_path / "disk").mkdir()
        self.is_small = "pool_bytes" in settings
        self.has_tiers = "store_default" in settings
        self.daemon = Daemon(("chat", "stranger"), **{"pool_bytes": roomy, **settings})
        self.disturbed = 0

    def disturb(self):
        self.disturbed += 1
        if self.how:
            self.daemon.stop(self.how)
            self.daemon.start()
        if self.is_small:
            self._fill()

    def _fill(self):
        """A stranger takes all that can be had, and lets go of it again."""
        with self.daemon.pool("stranger") as pool:
            assert take_all(pool, self.disturbed) > 0

    def evictions(self):
        with self.daemon.operator() as operator:
            return operator.stats()["numbers"]["pool_evictions"]

    def tokens_from_below(self):
        """Of the prompts, those that were found in a tier below the pool only."""
        with self.daemon.operator() as operator:
            return sum(tier["hit_tokens"] for tier in operator.status()["tiers"]
                       if tier["name"] != "device")


@pytest.fixture
def bed(request, tmp_path):
    beds = []

    def make(regime, small="4MiB", roomy="256MiB"):
        beds.append(Bed(regime, small, roomy, tmp_path))
        return beds[-1]
    yield make
    for each in beds:
        each.daemon.finish()


@functools.cache
def dense(model, dtype, lengths, together, chunk):
    script = functools.partial(everything, lengths=lengths, together=together)
    return script, trace_of(model, script, dtype, chunk=chunk)


def play(model, bed, dtype, lengths, together=True, chunk=256):
    # With 32 bits the chunks make no difference; with 16 they do, in either cache.
    script, trace = dense(model, dtype, lengths, together, 256 if dtype == "f32" else chunk)
    with bed.daemon.pool(staging_bytes=staging_bytes(model)) as pool:
        cache = DaemonCache(model, pool, dtype)
        player = compare(model, cache, trace, script, dtype, disturb=bed.disturb, chunk=chunk)
    assert bed.disturbed == 3
    assert bed.evictions() > 0 or not bed.is_small or bed.how
    assert bed.tokens_from_below() > 0 or not bed.has_tiers
    print(f"of {len(player.errors)} logits the farthest off is {max(player.errors):.5f}")
    return player


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TINY)
def test_tiny(models, bed, name, dtype, regime):
    model = models(name)
    player = play(model, bed(regime, "2MiB"), dtype, LENGTHS)
    assert len(player.errors) > 100


@pytest.mark.parametrize("together", (True, False))
@pytest.mark.parametrize("chunk", (1, 7, 16, 64))
@pytest.mark.parametrize("name", TINY)
def test_tiny_in_chunks(models, bed, name, chunk, together):
    play(models(name), bed("plain"), "f32", (1, 5, 16, 50, 130), together, chunk)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TINY)
def test_tiny_long(models, bed, name, dtype):
    play(models(name), bed("plain"), dtype, (8000, 1, 3000), chunk=512)


@pytest.mark.parametrize("regime", ("plain", "evicted", "disk", "killed", "disk, killed"))
@pytest.mark.parametrize("name", REAL)
def test_real(models, bed, name, regime):
    model = models(name)
    play(model, bed(regime, "48MiB"), "f32", (1, 17, 150))


@pytest.mark.parametrize("dtype", ("f16", "bf16"))
@pytest.mark.parametrize("name", REAL)
def test_real_in_16_bits(models, bed, name, dtype):
    play(models(name), bed("plain"), dtype, (3, 40, 150))


@pytest.mark.long
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REAL)
def test_real_everything(models, bed, name, dtype, regime):
    small = "128MiB" if dtype == "f32" else "64MiB"
    play(models(name), bed(regime, small), dtype, (1, 16, 600, 1500))


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", ((2000, 1), (8000, 1, 2000)))
@pytest.mark.parametrize("name", REAL)
def test_real_long(models, bed, name, lengths, dtype):
    play(models(name), bed("plain", roomy="2GiB"), dtype, lengths, chunk=512)
