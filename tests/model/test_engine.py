"""Who runs when: over a cache that writes down what it was asked."""

import contextlib
import time

import kvpool
import pytest

from engine import tiny
from engine.cache import DaemonCache, NoRoom, staging_bytes
from engine.daemon import Daemon
from engine.dense import LocalCache
from engine.engine import Engine


class Watched(LocalCache):
    """Writes down each pass as [(sequence, number of tokens)]."""

    def __init__(self, model):
        super().__init__(model)
        self.passes = []

    def stepping(self, rows):
        self.passes.append([(sequence, len(tokens)) for sequence, tokens in rows])
        return super().stepping(rows)


@pytest.fixture
def engine():
    model = tiny.make()
    return Engine(model, Watched(model), chunk=16, max_rows=40)


def prompt(length):
    return [3 + n % 200 for n in range(length)]


def test_prompts_go_in_chunks_then_token_by_token(engine):
    sequence = engine.add(prompt(40), 3, stops=())
    engine.run(sequence)
    assert engine.cache.passes == [[(1, 16)], [(1, 16)], [(1, 8)], [(1, 1)], [(1, 1)]]
    assert len(sequence.new) == 3 and sequence.finish == "length"
    assert sequence.done == 42 and sequence.computed == 42 and len(sequence.tokens) == 43


def test_one_joins_while_another_answers(engine):
    one = engine.add(prompt(4), 8, stops=())
    engine.step()
    two = engine.add(prompt(20), 2, stops=())
    engine.run(one, two)
    assert engine.cache.passes[:4] == [[(1, 4)], [(1, 1), (2, 16)], [(1, 1), (2, 4)], [(1, 1), (2, 1)]]
    assert engine.cache.passes[4] == [(1, 1)]  # the other has left


def test_a_pass_has_no_more_rows_than_it_may(engine):
    sequences = [engine.add(prompt(30), 1, stops=()) for _ in range(4)]
    engine.step()
    assert engine.cache.passes == [[(1, 16), (2, 16), (3, 8)]]
    engine.run(*sequences)


def test_alone_or_together_the_answers_are_the_same(engine):
    prompts = [prompt(n) for n in (5, 17, 40)]
    together = engine.run(*[engine.add(tokens, 6) for tokens in prompts])
    alone = [engine.run(engine.add(tokens, 6))[0] for tokens in prompts]
    assert together == alone


def test_it_stops_at_a_stop_token(engine):
    free = engine.run(engine.add(prompt(9), 5, stops=()))[0]
    sequence = engine.add(prompt(9), 5, stops=[free[0]])
    assert engine.run(sequence) == [free[:1]] and sequence.finish == "stop"


def test_a_turn_continues(engine):
    sequence = engine.add(prompt(9), 4, stops=())
    first = engine.run(sequence)[0]
    engine.extend(sequence, prompt(5), 4)
    second = engine.run(sequence)[0]
    whole = engine.add(prompt(9) + first + prompt(5), 4, stops=())
    assert engine.run(whole)[0] == second
    assert engine.cache.passes[4] == [(1, 6)]  # the last token of the answer, and the turn


def test_a_fork_has_what_the_parent_computed(engine):
    parent = engine.add(prompt(20), 2, stops=())
    engine.run(parent)
    child = engine.fork(parent, prompt(3), 4)
    assert child.cached == parent.done == 21
    new = engine.run(child)[0]
    same = engine.add(prompt(20) + parent.new[:1] + prompt(3), 4, stops=())
    assert engine.run(same)[0] == new


def test_truncation(engine):
    sequence = engine.add(prompt(20), 3, stops=())
    first = engine.run(sequence)[0]
    engine.truncate(sequence, 20, max_new=3)
    # Its last token has to go through again: there are no logits of it any more.
    engine.truncate(sequence, 19, prompt(20)[19:], 3)
    assert engine.run(sequence)[0] == first


def test_preempted_it_does_not_run(engine):
    one, two = engine.add(prompt(20), 4, stops=()), engine.add(prompt(9), 4, stops=())
    engine.step()
    engine.preempt(one)
    engine.run(two)
    assert not one.is_finished
    with pytest.raises(ValueError, match="preempted"):  # rather than wait for ever
        engine.run(one)
    engine.resume(one)
    assert engine.run(one)[0] == engine.run(engine.add(prompt(20), 4, stops=()))[0]


def preempted_and_changed(engine):
    """What it says if it is cut, forked and extended while it has no blocks."""
    sequence = engine.add(prompt(60), 3, stops=())
    engine.run(sequence)
    engine.preempt(sequence)
    engine.truncate(sequence, 20, prompt(2), 3)
    engine.resume(sequence)
    cut = engine.run(sequence)
    engine.preempt(sequence)
    child = engine.fork(sequence, prompt(1), 2)
    engine.extend(sequence, prompt(3), 2)
    engine.resume(sequence)
    return cut + engine.run(sequence, child)


@pytest.mark.parametrize("family", ("llama", "gemma3"))
def test_preempted_it_can_be_changed(family):
    model = tiny.make(family)
    wanted = preempted_and_changed(Engine(model, LocalCache(model)))
    whole = Engine(model, LocalCache(model))
    assert wanted[0] == whole.run(whole.add(prompt(20) + prompt(2), 3, stops=()))[0]
    with Daemon() as daemon, daemon.pool(staging_bytes=staging_bytes(model)) as pool:
        assert preempted_and_changed(Engine(model, DaemonCache(model, pool))) == wanted


def test_a_pass_is_one_step_and_one_call_a_layer(monkeypatch):
    """Whatever runs in it: here a chunk of a prompt beside a token of an answer."""
    model, calls = tiny.make(), []
    with Daemon() as daemon, daemon.pool(staging_bytes=staging_bytes(model)) as pool:
        engine = Engine(model, DaemonCache(model, pool), chunk=16)
        one = engine.add(prompt(20), 8, stops=())
        engine.step(), engine.step()
        engine.add(prompt(70)[40:], 1, stops=())
        for name in [name for name in dir(kvpool.EngineVerbs) if not name.startswith("_")]:
            verb = getattr(pool, name)
            monkeypatch.setattr(kvpool.Pool, name, lambda _, *words, name=name, verb=verb, **more: (
                calls.append(name), verb(*words, **more))[1])
        engine.step()
        assert len(one.new) == 2
    assert calls == ["match", "allocate", "step", *["attend"] * model.num_layers]


def test_released_it_leaves(engine):
    sequence = engine.add(prompt(9), 4)
    engine.step()
    engine.release(sequence)
    assert engine.step() == [] and engine.running == [] and engine.cache.arrays == {}


@pytest.fixture
def small():
    """An engine over a daemon that has room for about 1,000 tokens."""
    model = tiny.make()
    with Daemon(pool_bytes="1MiB") as daemon, daemon.pool(staging_bytes=staging_bytes(model)) as pool:
        yield Engine(model, DaemonCache(model, pool))


def test_without_room_the_youngest_waits(small):
    prompts = [[3 + (n * k) % 250 for n in range(400)] for k in (3, 5, 7, 11)]
    sequences = [small.add(tokens, 40, stops=()) for tokens in prompts]
    while not all(sequence.is_finished for sequence in sequences):
        small.step()
        for sequence in sequences:
            if sequence.is_finished and sequence in small.running:
                small.release(sequence)
    dense = Engine(small.model, LocalCache(small.model))
    assert [s.new for s in sequences] == dense.run(*[dense.add(t, 40, stops=()) for t in prompts])


def test_one_that_never_fits_is_named(small):
    small.add([5] * 3000)
    with pytest.raises(NoRoom) as caught:
        small.step()
    assert caught.value.sequence is small.running[0]
    small.release(caught.value.sequence)
    assert len(small.run(small.add([5] * 20, 3, stops=()))[0]) == 3


def test_a_refusal_is_about_one():
    """The others go on, and one that is refused may be let go of, or wait for better times."""
    model = tiny.make()
    with Daemon() as daemon, daemon.operator() as operator, daemon.pool(
            staging_bytes=staging_bytes(model)) as pool:
        engine, dense = Engine(model, DaemonCache(model, pool)), Engine(model, LocalCache(model))
        runs = engine.add(prompt(20), 6, stops=())
        engine.step()
        operator.drain()
        refused = engine.add(prompt(40), 2, stops=())
        for _ in range(3):
            with pytest.raises(kvpool.Draining) as caught:
                engine.step()
            assert caught.value.sequence is refused
        engine.preempt(refused)
        engine.run(runs)
        operator.drain(undo=True)
        engine.resume(refused)
        assert [runs.new, *engine.run(refused)] == dense.run(
            dense.add(prompt(20), 6, stops=()), dense.add(prompt(40), 2, stops=()))


def test_a_fork_that_is_refused_leaves_nothing(engine, monkeypatch):
    parent = engine.add(prompt(20), 2, stops=())
    engine.run(parent)
    monkeypatch.setattr(engine.cache, "fork", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        engine.fork(parent, prompt(3))
    assert engine.running == [parent] and engine.waiting == []


def test_while_there_is_no_daemon_it_says_so_and_goes_on_later():
    model = tiny.make()
    with Daemon() as daemon, daemon.pool(connect_timeout=0.2,
                                         staging_bytes=staging_bytes(model)) as pool:
        engine = Engine(model, DaemonCache(model, pool))
        sequence, other = engine.add(prompt(30), 8, stops=()), engine.add(prompt(9), 8, stops=())
        engine.step()
        daemon.stop(9)
        for _ in range(2):
            with pytest.raises(kvpool.Disconnected):
                engine.step()
        engine.release(other)
        daemon.start()
        dense = Engine(model, LocalCache(model))
        assert engine.run(sequence) == dense.run(dense.add(prompt(30), 8, stops=()))


@contextlib.contextmanager
def beside_one_that_stopped():
    """An engine and a dense one, and a prompt that yet another engine has begun to compute."""
    model, shared = tiny.make(), prompt(50)
    with Daemon() as daemon, daemon.pool() as theirs, daemon.pool(
            staging_bytes=staging_bytes(model)) as pool:
        DaemonCache(model, theirs).open(1, shared)  # and computes nothing
        yield Engine(model, DaemonCache(model, pool)), Engine(model, LocalCache(model)), shared


def test_while_one_waits_for_another_engine_others_run():
    """And not for ever: an engine that stopped in the middle is not waited for."""
    with beside_one_that_stopped() as (engine, dense, shared):
        waits = engine.add(shared, 3, stops=())
        start = time.monotonic()
        assert engine.step() == [] and engine.waiting == [waits]
        assert start + 20 < waits.gives_up < start + 40
        other = engine.add(prompt(9)[3:], 3, stops=())
        assert engine.run(other) == dense.run(dense.add(prompt(9)[3:], 3, stops=()))
        assert time.monotonic() - start < 5 and engine.waiting == [waits]
        waits.gives_up = time.monotonic() + 0.7  # a wait or two
        assert engine.run(waits) == dense.run(dense.add(shared, 3, stops=()))
        assert waits.computed == 52


def test_an_engine_that_is_busy_waits_for_another_one_no_longer():
    with beside_one_that_stopped() as (engine, dense, shared):
        busy = engine.add(prompt(9)[3:], 4000, stops=())
        engine.step()
        waits = engine.add(shared, 3, stops=())
        engine.step()
        assert engine.waiting == [waits] and not waits.is_open
        waits.gives_up = time.monotonic()
        assert engine.run(waits) == dense.run(dense.add(shared, 3, stops=()))
        assert not busy.is_finished


def test_one_that_is_cut_when_the_daemon_is_gone_joins_once():
    model = tiny.make()
    with Daemon() as daemon, daemon.pool(staging_bytes=staging_bytes(model)) as pool:
        engine = Engine(model, DaemonCache(model, pool))
        sequence = engine.add(prompt(60), 3, stops=())
        engine.run(sequence)
        daemon.stop(9)
        daemon.start()
        engine.truncate(sequence, 20, prompt(2), 3)
        dense = Engine(model, LocalCache(model))
        assert engine.run(sequence) == dense.run(dense.add(prompt(20) + prompt(2), 3, stops=()))
        assert engine.waiting == [] and engine.step() == []


def test_growth_preempts_and_comes_back(small, monkeypatch):
    preempted, preempt = [], small.preempt
    monkeypatch.setattr(small, "preempt", lambda s: (preempted.append(s), preempt(s)))
    prompts = [[3 + (n * k) % 250 for n in range(330)] for k in (3, 5, 7)]
    sequences = [small.add(tokens, 150, stops=()) for tokens in prompts]
    for _ in range(1000):
        small.step()
        for sequence in [s for s in sequences if s.is_finished and s in small.running]:
            small.release(sequence)
        if not small.running:
            break
    dense = Engine(small.model, LocalCache(small.model))
    assert [s.new for s in sequences] == dense.run(*[dense.add(t, 150, stops=()) for t in prompts])
    assert preempted
