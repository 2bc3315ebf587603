"""A hypothesis state machine: a pool of a few pages, two tenants, and what they must be told.

The model here knows tokens, which of them are complete, and which prefixes were ever published. It
does not know what is evicted when, so it bounds matches: from below by what somebody holds, from
above by what somebody of the tenant published. Every attention output and every block that is read
is compared with what the tokens say.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dense
import kvpool
import numpy as np
import toy
from conftest import TOKEN, Daemon, toy_model
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

BLOCK = 16
PAGES = 16  # as few as a pool may have
DIM = 64  # so that a page has two blocks of the first model, four of the second
MAX_TOKENS = 100
WINDOW = 24
# Few documents, so that prompts share prefixes; tokens at their ends, so that they part.
DOCUMENTS = [[d * 1000 + i for i in range(MAX_TOKENS)] for d in range(2)]
MAX_SEQS = 5  # of a tenant
MISSING = 99
NAMES = st.integers(0, MAX_SEQS)  # one of those there are, or what there is not: see name()
TENANTS = st.integers(0, 1)
MODELS = st.integers(0, 1)
PROMPTS = st.builds(
    lambda d, n, end: DOCUMENTS[d][:n] + end,
    st.integers(0, 1),
    st.integers(0, 60),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
)
TAKES = st.none() | st.integers(0, 40)


def whole(method: Callable[..., None]) -> Callable[..., None]:
    """Finds the sequences that name and fresh stand for. Notes that a rule ended as it should, so
    that teardown() can rely on the model."""

    @functools.wraps(method)
    def run(self: PoolMachine, **drawn: Any) -> None:
        if drawn.keys() & {"name", "drawn"} and not self.tenants[drawn["tenant"]].seqs:
            drawn["tenant"] = 1 - drawn["tenant"]  # rather one that has something
        for word, find in (("name", self.name), ("fresh", self.fresh_name)):
            if word in drawn:
                drawn[word] = find(drawn["tenant"], drawn[word])
        self.is_whole = False
        method(self, **drawn)
        self.is_whole = True

    return run


class Bed:
    """One daemon, a session of each tenant and an operator's; for all examples."""

    def __init__(self, rings: bool) -> None:
        self.daemon = Daemon(pool_bytes=f"{64 * PAGES}KiB", worker_threads=1)
        self.models = [
            toy_model(k_head_dim=DIM, v_head_dim=DIM),
            toy_model(
                k_head_dim=DIM,
                v_head_dim=DIM,
                groups=(kvpool.LayerGroup((0,)), kvpool.LayerGroup((1,), WINDOW)),
            ),
        ]
        self.pools = [self.daemon.pool(rings=rings), self.daemon.pool(rings=rings, token=TOKEN)]
        for pool in self.pools:
            for model in self.models:
                pool.register_model(model)
        self.operator = self.daemon.operator()
        self.salts = itertools.count()

    def renew(self) -> None:
        """Other sessions: whatever these held is let go of."""
        for pool in self.pools:
            pool.reconnect()

    def finish(self) -> None:
        for connection in (*self.pools, self.operator):
            connection.close()
        self.daemon.finish()


@dataclass
class Seq:
    """What a sequence must be."""

    model: int
    tokens: list[int]
    complete: int
    published: int = 0
    """So many tokens are surely in published blocks that it holds."""
    is_preempted: bool = False
    is_filled: bool = False
    """Its last allocation's tokens were complete once: by steps, or by fill()."""

    def commit(self, text: list[int]) -> None:
        """A step made it so."""
        self.tokens[: len(text)] = text
        self.complete = len(text)
        self.is_filled = self.complete == len(self.tokens)
        self.published = self.complete // BLOCK * BLOCK

    def num_blocks(self) -> int:
        return 0 if self.is_preempted else -(-len(self.tokens) // BLOCK)


@dataclass
class Tenant:
    """What a tenant has."""

    seqs: dict[int, Seq] = field(default_factory=dict)
    published: set[tuple[int, ...]] = field(default_factory=set)
    """(model, tokens of a prefix of whole blocks) that may be found."""

    def publishes(self, seq: Seq) -> None:
        for end in range(BLOCK, seq.complete + 1, BLOCK):
            self.published.add((seq.model, *seq.tokens[:end]))

    def bounds(self, model: int, tokens: Sequence[int], most: int) -> tuple[int, int]:
        """At least, at most so many of the tokens are found."""
        held = {
            (model, *seq.tokens[:end])
            for seq in self.seqs.values()
            if seq.model == model and not seq.is_preempted
            for end in range(BLOCK, seq.published + 1, BLOCK)
        }
        ends = range(BLOCK, most + 1, BLOCK)
        prefixes = [(model, *tokens[:end]) for end in ends]
        low = len(list(itertools.takewhile(held.__contains__, prefixes)))
        high = len(list(itertools.takewhile(self.published.__contains__, prefixes)))
        return (low if model == 0 else 0) * BLOCK, high * BLOCK


class PoolMachine(RuleBasedStateMachine):
    """Names of sequences are few, so that verbs name what is not there, too."""

    bed: Bed

    @initialize(some=st.lists(st.tuples(TENANTS, MODELS, PROMPTS), min_size=2, max_size=5))
    def begin(self, some: list[tuple[int, int, list[int]]]) -> None:
        self.salt = str(next(self.bed.salts)).encode()
        self.tenants = [Tenant(), Tenant()]
        self.is_whole = True
        for tenant, model, tokens in some:
            self.allocate(tenant=tenant, fresh=0, model=model, tokens=tokens, take=None, fill=True)

    # ---- what must be answered

    def ask(self, call: Callable[[], object], *may: type[kvpool.KvpoolError]) -> object | None:
        """The result, or None where it answered one of those that it may."""
        try:
            return call() or True
        except may:
            return None

    def must(self, error: type[kvpool.KvpoolError], call: Callable[[], object]) -> None:
        try:
            call()
        except error:
            return
        raise AssertionError(f"{error.__name__} was wanted")

    def shortage(self, num_blocks: int) -> tuple[type[kvpool.KvpoolError], ...]:
        """What may be answered where so many blocks more are wanted: nothing, if there is plenty."""
        live = sum(s.num_blocks() for t in self.tenants for s in t.seqs.values())
        groups = 2
        if (live + num_blocks) * groups <= PAGES:
            return ()
        return (kvpool.NoBlocks, kvpool.NeverFits)

    def prompt(self, model: int, tokens: list[int]) -> kvpool.Prompt:
        return kvpool.Prompt(self.bed.models[model], tokens, salt=self.salt)

    def name(self, tenant: int, drawn: int) -> int:
        """Of a sequence that there is; of MAX_SEQS, of none."""
        names = sorted(self.tenants[tenant].seqs)
        return names[drawn % len(names)] if names and drawn < MAX_SEQS else MISSING

    def fresh_name(self, tenant: int, drawn: int) -> int:
        """Of a sequence that there is not; of MAX_SEQS, or if there are so many, of one there is."""
        names = self.tenants[tenant].seqs
        if names and (drawn == MAX_SEQS or len(names) == MAX_SEQS):
            return self.name(tenant, 0)
        return min(set(range(MAX_SEQS)) - names.keys())

    def seq(self, tenant: int, name: int) -> Seq | None:
        return self.tenants[tenant].seqs.get(name)

    # ---- sequences come

    @rule(tenant=TENANTS, fresh=NAMES, model=MODELS, tokens=PROMPTS, take=TAKES, fill=st.booleans())
    @whole
    def allocate(
        self, tenant: int, fresh: int, model: int, tokens: list[int], take: int | None, fill: bool
    ) -> None:
        """fill: and computes it."""
        mine, pool = self.tenants[tenant], self.bed.pools[tenant]

        def call() -> kvpool.State:
            prompt = self.prompt(model, tokens)
            return pool.allocate(fresh, prompt, unfilled=True, take=take, table=True)

        if fresh in mine.seqs:
            self.must(kvpool.Exists, call)
            return
        low, high = mine.bounds(model, tokens, len(tokens) - 1)
        state = self.ask(call, *self.shortage(-(-len(tokens) // BLOCK)))
        if not isinstance(state, kvpool.State):
            return
        self.check_state(state, (low, high), len(tokens), take)
        if state.arriving:
            assert any(s.published < len(s.tokens) // BLOCK * BLOCK for s in mine.seqs.values())
        mine.seqs[fresh] = Seq(model, tokens[: state.length], state.matched, state.matched)
        assert len(state.tables) == len(self.bed.models[model].layer_groups)
        assert len(state.tables[0].slots) == -(-state.length // BLOCK)
        assert state.tables[0].slots.all()
        if fill and state.length > state.matched:
            self.forward(tenant, {fresh: tokens[state.matched : state.length]}, "commit", [0, 1])

    def check_state(
        self, state: kvpool.State, bounds: tuple[int, int], num_tokens: int, take: int | None
    ) -> None:
        assert bounds[0] <= state.matched <= bounds[1]
        assert state.matched % BLOCK == 0
        most = num_tokens if take is None else state.matched + take
        assert state.length == min(num_tokens, most)

    @rule(tenant=TENANTS, model=MODELS, tokens=PROMPTS, verb=st.sampled_from(["match", "prefetch"]))
    @whole
    def match(self, tenant: int, model: int, tokens: list[int], verb: str) -> None:
        low, high = self.tenants[tenant].bounds(model, tokens, len(tokens) - 1)
        found = getattr(self.bed.pools[tenant], verb)(self.prompt(model, tokens))
        assert low <= found.matched <= high

    @rule(tenant=TENANTS, name=NAMES, fresh=NAMES)
    @whole
    def fork(self, tenant: int, name: int, fresh: int) -> None:
        mine = self.tenants[tenant].seqs
        seq = mine.get(name)

        def call() -> kvpool.State:
            return self.bed.pools[tenant].fork(name, fresh)

        if seq is None:
            self.must(kvpool.NotFound, call)
        elif fresh in mine:
            self.must(kvpool.Exists, call)
        elif seq.is_preempted or not seq.is_filled:
            self.must(kvpool.Invalid, call)
        else:
            assert call().length == seq.complete
            mine[fresh] = replace(seq, tokens=list(seq.tokens))

    # ---- sequences grow

    @rule(
        tenant=TENANTS,
        drawn=st.dictionaries(NAMES, st.lists(st.integers(0, 2), min_size=1, max_size=20), min_size=1, max_size=3),
        finish=st.booleans(),
        outcome=st.sampled_from(["commit", "commit", "abandon", "early"]),
        order=st.permutations([0, 1]),
    )  # fmt: skip
    @whole
    def step(
        self,
        tenant: int,
        drawn: dict[int, list[int]],
        finish: bool,
        outcome: str,
        order: list[int],
    ) -> None:
        """Of some sequences; finish: all that is missing of those that are unfilled."""
        rows = {}
        for name, new in drawn.items():
            name = self.name(tenant, name)
            seq = self.seq(tenant, name)
            known = seq.tokens[seq.complete :] if seq else []
            rows[name] = known[: None if finish else len(new)] + new[len(known) :]
        self.forward(tenant, rows, outcome, order)

    def forward(
        self, tenant: int, rows: dict[int, list[int]], outcome: str, order: list[int]
    ) -> None:
        mine, pool = self.tenants[tenant], self.bed.pools[tenant]
        seqs = {name: mine.seqs[name] for name in rows if name in mine.seqs}
        texts = {name: seq.tokens[: seq.complete] + rows[name] for name, seq in seqs.items()}
        models = {seq.model for seq in seqs.values()}
        wrong: set[type[kvpool.KvpoolError]] = set()
        if len(seqs) < len(rows):
            wrong.add(kvpool.NotFound)
        if len(models) > 1 or any(seq.is_preempted for seq in seqs.values()):
            wrong.add(kvpool.Invalid)
        if any(len(text) > MAX_TOKENS for text in texts.values()):
            return
        may = wrong or self.shortage(sum(1 + len(new) // BLOCK for new in rows.values()))
        model = self.bed.models[min(models, default=0)]
        step = self.ask(lambda: pool.step(model, rows), *may)
        if not isinstance(step, kvpool.Step):
            return
        assert not wrong
        assert step.num_rows == sum(len(new) for new in rows.values())
        self.attend(tenant, step, texts, order[:1] if outcome != "commit" else order)
        if outcome != "commit":
            if outcome == "early":
                self.must(kvpool.Invalid, lambda: pool.end_step(step))
            for name in rows:  # in a step
                self.must(kvpool.Invalid, functools.partial(pool.preempt, name))
            pool.end_step(step, abandon=True)
            return
        self.must(kvpool.NotFound, lambda: pool.end_step(step))
        for name, text in texts.items():
            seqs[name].commit(text)
            mine.publishes(seqs[name])

    def attend(
        self, tenant: int, step: kvpool.Step, texts: dict[int, list[int]], layers: list[int]
    ) -> None:
        model, pool = step.model, self.bed.pools[tenant]
        for layer in layers:
            parts, expected = [], []
            window = next(g.window for g in model.layer_groups if layer in g.layers)
            for name, text in texts.items():
                first = self.tenants[tenant].seqs[name].complete
                q = toy.tensor(text, first, layer, toy.QUERY, 4, DIM)
                k = toy.tensor(text, 0, layer, toy.KEY, 2, DIM)
                v = toy.tensor(text, 0, layer, toy.VALUE, 2, DIM)
                parts.append((q, k[first:], v[first:]))
                expected.append(dense.attention(q, k, v, first, window=window)[0])
            q, k, v = (np.concatenate(part) for part in zip(*parts, strict=True))
            out = pool.attend(step, layer, q, k, v)
            np.testing.assert_allclose(out, np.concatenate(expected), rtol=0, atol=2e-5)

    @rule(tenant=TENANTS, name=NAMES, new=st.lists(st.integers(0, 2), min_size=1, max_size=20))
    @whole
    def append_and_write(self, tenant: int, name: int, new: list[int]) -> None:
        """As engines without steps do it."""
        seq, pool = self.seq(tenant, name), self.bed.pools[tenant]
        if seq is None:
            self.must(kvpool.NotFound, lambda: pool.append(name, new))
        elif seq.is_preempted or not seq.is_filled:
            self.must(kvpool.Invalid, lambda: pool.append(name, new))
        elif len(seq.tokens) + len(new) <= MAX_TOKENS:
            may = self.shortage(1 + len(new) // BLOCK)
            state = self.ask(lambda: pool.append(name, new), *may)
            if isinstance(state, kvpool.State):
                first = len(seq.tokens) // BLOCK
                seq.tokens += new
                seq.complete = len(seq.tokens)
                assert state.length == seq.complete
                self.write(tenant, name, seq, first)

    @rule(tenant=TENANTS, name=NAMES)
    @whole
    def write_and_fill(self, tenant: int, name: int) -> None:
        seq, pool = self.seq(tenant, name), self.bed.pools[tenant]
        if seq and not seq.is_preempted and not seq.is_filled and seq.model == 0:
            self.write(tenant, name, seq, seq.complete // BLOCK)
            assert pool.fill(name).length == len(seq.tokens)
            seq.complete, seq.is_filled = len(seq.tokens), True
            self.tenants[tenant].publishes(seq)

    def write(self, tenant: int, name: int, seq: Seq, first: int) -> None:
        model, pool = self.bed.models[seq.model], self.bed.pools[tenant]
        if first * BLOCK == len(seq.tokens):
            return
        for group in range(len(model.layer_groups)):
            blocks = self.blocks(seq, group, first)
            pool.write(name, blocks, group=group, first_block=first)

    def blocks(self, seq: Seq, group: int, first: int) -> np.ndarray:
        """What blocks of a sequence, from the first on, have to hold; 0 behind its tokens."""
        model = self.bed.models[seq.model]
        layers = model.layer_groups[group].layers
        num = -(-len(seq.tokens) // BLOCK) - first
        blocks = np.zeros((num, len(layers), 2, 2, BLOCK, DIM), np.float32)
        for i, layer in enumerate(layers):
            for j, what in enumerate((toy.KEY, toy.VALUE)):
                values = toy.tensor(seq.tokens, first * BLOCK, layer, what, 2, DIM)
                flat = np.zeros((num * BLOCK, 2, DIM), np.float32)
                flat[: len(values)] = values
                blocks[:, i, j] = flat.reshape(num, BLOCK, 2, DIM).transpose(0, 2, 1, 3)
        return blocks

    @rule(tenant=TENANTS, name=NAMES, where=st.integers(0, 10))
    @whole
    def read(self, tenant: int, name: int, where: int) -> None:
        seq, pool = self.seq(tenant, name), self.bed.pools[tenant]
        if seq is None:
            self.must(kvpool.NotFound, lambda: pool.read(name, 1))
            return
        if seq.is_preempted or seq.complete == 0 or seq.model != 0:
            return
        block = where % -(-seq.complete // BLOCK)
        k, v = self.bed.models[0].kv_views(pool.read(name, 1, first_block=block))
        assert v is not None
        wanted = self.blocks(seq, 0, block)[0]
        num = min(BLOCK, seq.complete - block * BLOCK)
        assert np.array_equal(k[0, :, :, :num], wanted[:, 0, :, :num])
        assert np.array_equal(v[0, :, :, :num], wanted[:, 1, :, :num])

    @rule(tenant=TENANTS, name=NAMES)
    @whole
    def publish(self, tenant: int, name: int) -> None:
        seq = self.seq(tenant, name)

        def call() -> kvpool.State:
            return self.bed.pools[tenant].publish(name)

        if seq is None:
            self.must(kvpool.NotFound, call)
        elif seq.is_preempted or not seq.is_filled:
            self.must(kvpool.Invalid, call)
        else:
            assert call().length == seq.complete
            seq.published = seq.complete // BLOCK * BLOCK
            self.tenants[tenant].publishes(seq)

    # ---- sequences shrink and go

    @rule(tenant=TENANTS, name=NAMES, length=st.integers(0, MAX_TOKENS))
    @whole
    def truncate(self, tenant: int, name: int, length: int) -> None:
        seq = self.seq(tenant, name)

        def call() -> kvpool.State:
            return self.bed.pools[tenant].truncate(name, length)

        if seq is None:
            self.must(kvpool.NotFound, call)
        elif seq.is_preempted or not seq.is_filled or length > len(seq.tokens):
            self.must(kvpool.Invalid, call)
        else:
            state = self.ask(call, *([kvpool.Invalid] if seq.model else []))
            if isinstance(state, kvpool.State):
                assert state.length == length
                del seq.tokens[length:]
                seq.complete = length
                seq.published = min(seq.published, length // BLOCK * BLOCK)

    @rule(tenant=TENANTS, name=NAMES)
    @whole
    def release(self, tenant: int, name: int) -> None:
        if self.seq(tenant, name) is None:
            self.must(kvpool.NotFound, lambda: self.bed.pools[tenant].release(name))
        else:
            self.bed.pools[tenant].release(name)
            del self.tenants[tenant].seqs[name]

    @rule(tenant=TENANTS, name=NAMES)
    @whole
    def preempt(self, tenant: int, name: int) -> None:
        seq = self.seq(tenant, name)

        def call() -> None:
            self.bed.pools[tenant].preempt(name)

        if seq is None:
            self.must(kvpool.NotFound, call)
        elif seq.is_preempted:
            self.must(kvpool.Invalid, call)
        else:
            call()
            seq.is_preempted, seq.published = True, 0

    @rule(tenant=TENANTS, name=NAMES, take=TAKES)
    @whole
    def resume(self, tenant: int, name: int, take: int | None) -> None:
        seq, mine = self.seq(tenant, name), self.tenants[tenant]

        def call() -> kvpool.State:
            return self.bed.pools[tenant].resume(name, unfilled=True, take=take)

        if seq is None:
            self.must(kvpool.NotFound, call)
        elif not seq.is_preempted or not seq.tokens:
            self.must(kvpool.Invalid, call)
        else:
            bounds = mine.bounds(seq.model, seq.tokens, len(seq.tokens) - 1)
            state = self.ask(call, *self.shortage(-(-len(seq.tokens) // BLOCK)))
            if isinstance(state, kvpool.State):
                self.check_state(state, bounds, len(seq.tokens), take)
                del seq.tokens[state.length :]
                seq.complete = seq.published = state.matched
                seq.is_preempted = seq.is_filled = False

    @precondition(lambda self: not any(t.seqs for t in self.tenants))
    @rule()
    def clear(self) -> None:
        """Everything is forgotten, of both tenants."""
        self.bed.operator.clear()
        for tenant in self.tenants:
            tenant.published.clear()

    def teardown(self) -> None:
        """Nothing is held by nobody. After a failure everything is new."""
        if not getattr(self, "is_whole", False):
            self.bed.renew()
            return
        try:
            for pool, tenant in zip(self.bed.pools, self.tenants, strict=True):
                for name in tenant.seqs:
                    pool.release(name)
            until = time.monotonic() + 5
            while any(t["held"] or t["reserved"] for t in self.bed.operator.tenants()):
                assert time.monotonic() < until, self.bed.operator.tenants()
        except BaseException:
            self.bed.renew()
            raise
