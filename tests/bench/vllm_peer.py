#!/usr/bin/env python3
"""tests/bench/vllm_peer.py WHEEL - vLLM's own block manager, for the rows of bench_pool.

By command only, never in tests/run:
    pip download --no-deps vllm==0.33.0
    tests/bench/vllm_peer.py vllm-0.33.0-*.whl
Imports the manager from the wheel; what it imports beside that and does not need for these verbs (torch, the
configuration, the engine) is replaced by stubs. The timed code is unmodified."""
import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import statistics
import sys
import tempfile
import time
import types
import zipfile

REAL = (
    "vllm.v1.core.block_pool",
    "vllm.v1.core.kv_cache_coordinator",
    "vllm.v1.core.kv_cache_manager",
    "vllm.v1.core.kv_cache_metrics",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.core.single_type_kv_cache_manager",
    "vllm.v1.hisparse.block_pool",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.kv_cache_layout",
    "vllm.v1.kv_cache_spec_registry",
    "vllm.v1.metrics.stats",
    "vllm.v1.request",
    "vllm.utils.hashing",
    "vllm.utils.math_utils",
)
PACKAGES = ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.hisparse", "vllm.v1.metrics", "vllm.utils")
BLOCK_TOKENS = 16


class Anything(type):
    """A class whose every attribute is such a class: base, decorator, type hint or function."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(cls, name, anything(name))
        return getattr(cls, name)

    def __or__(cls, other):
        return cls

    def __ror__(cls, other):
        return cls

    def __getitem__(cls, item):
        return cls


def anything(name):
    return Anything(name, (), {"__init__": lambda self, *args, **named: None})


class Stub(types.ModuleType):
    """A module that has whatever is asked of it."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, anything(name))
        return getattr(self, name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The manager from the wheel, packages without their __init__, stubs for all the rest."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path, target=None):
        root = name.partition(".")[0]
        if root not in ("vllm", "torch", "cbor2", "xxhash", "msgspec", "numpy", "zmq", "PIL"):
            return None
        if name in REAL:
            file = f"{self.folder}/{name.replace('.', '/')}.py"
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = Stub(spec.name)
        if spec.name == "vllm.logger":
            module.init_logger = __import__("logging").getLogger
        if spec.name == "vllm.utils":
            module.length_from_prompt_token_ids_or_embeds = lambda ids, embeds: len(ids)
        if spec.name == "vllm.v1.utils":
            module.ConstantList = ConstantList
        return module

    def exec_module(self, module):
        pass


class ConstantList:
    """As vllm.v1.utils has it: a list that is only read."""

    def __init__(self, items):
        self._x = items

    def __getitem__(self, item):
        return self._x[item]

    def __len__(self):
        return len(self._x)

    def __iter__(self):
        return iter(self._x)


def load(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [f"{name.replace('.', '/')}.py" for name in REAL])
    sys.meta_path.insert(0, Finder(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--blocks", type=int, default=100000)
    parser.add_argument("--rounds", type=int, default=201)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        load(options.wheel, folder)
        measure(options)


class Peer:
    """The manager, and prompts of which every block is in its cache."""

    def __init__(self, num_blocks, num_tokens):
        import random

        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

        utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        utils.init_none_hash(sha256)
        spec = FullAttentionSpec(block_size=BLOCK_TOKENS, num_kv_heads=8, head_size=128, dtype=None)
        config = KVCacheConfig(num_blocks, [], [KVCacheGroupSpec(["layer"], spec)])
        self.manager = KVCacheManager(
            config, max_model_len=131072, scheduler_block_size=BLOCK_TOKENS, hash_block_size=BLOCK_TOKENS
        )
        self.hasher = utils.get_request_block_hasher(BLOCK_TOKENS, sha256)
        self.params = SamplingParams()
        self.params.extra_args = self.params.skip_reading_prefix_cache = None
        self.params.max_tokens = 1
        self.random = random.Random(1)
        self.num_tokens = num_tokens
        self.num_made = 0
        # three quarters of the blocks: every warm prompt takes a new one, and evicts once there is none
        num_prompts = num_blocks * 3 // 4 // (num_tokens // BLOCK_TOKENS)
        self.prompts = [self.make() for _ in range(num_prompts)]
        for prompt in self.prompts:
            self.verbs(prompt)

    def make(self):
        return [self.random.randrange(151936) for _ in range(self.num_tokens)]

    def verbs(self, prompt):
        """Request and hash, lookup, allocate, free: the ns at which each has ended."""
        from vllm.v1.request import Request

        now = time.perf_counter_ns
        times = [now()]
        self.num_made += 1
        request = Request(str(self.num_made), prompt, self.params, None, block_hasher=self.hasher)
        times.append(now())
        blocks, num_computed = self.manager.get_computed_blocks(request)[:2]
        times.append(now())
        new = self.manager.allocate_slots(
            request, len(prompt) - num_computed, num_computed, new_computed_blocks=blocks
        )
        times.append(now())
        self.manager.free(request)
        times.append(now())
        assert new is not None
        return num_computed, times


def rows_of(rounds):
    """Medians in us, of each part and of all."""
    names = ("Request and hash", "get_computed_blocks", "allocate_slots", "free")
    parts = [[(times[i + 1] - times[i]) / 1000 for times in rounds] for i in range(len(names))]
    yield from ((name, statistics.median(part)) for name, part in zip(names, parts))
    yield "all", statistics.median((times[-1] - times[0]) / 1000 for times in rounds)


def measure(options):
    peer = Peer(options.blocks, 1024)
    warm, cold = [], []
    for _ in range(options.rounds):
        num_computed, times = peer.verbs(peer.random.choice(peer.prompts))
        assert num_computed == 1008, num_computed
        warm.append(times)
    for _ in range(len(peer.prompts) // 2):
        peer.verbs(peer.make()) # until it evicts
    for _ in range(options.rounds):
        num_computed, times = peer.verbs(peer.make())
        assert num_computed == 0, num_computed
        cold.append(times)
    rows = [(f"warm, 1,024 tokens: {name}", us) for name, us in rows_of(warm)]
    rows += [(f"cold, evicting, 1,024 tokens: {name}", us) for name, us in rows_of(cold)]
    if options.json:
        print(json.dumps({"title": "vllm", "rows": [{"name": name, "us": us} for name, us in rows]}))
        return
    for name, us in rows:
        print(f"{name:56} {us:10.1f} us")


if __name__ == "__main__":
    main()
