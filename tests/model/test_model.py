"""The arithmetic: its parts by hand, the whole against double precision and by what it says."""

import os

import numpy as np
import pytest

from engine import facts, tiny
from engine.dense import LocalCache
from engine.engine import Engine
from engine.model import gelu_tanh, load, rms_norm, rotate, silu, unpermute


def test_rms_norm():
    x = np.array([[3.0, 4.0]])  # mean square 12.5
    assert np.allclose(rms_norm(x, np.array([1.0, 2.0]), 0), [[3 / 12.5 ** .5, 8 / 12.5 ** .5]])


def test_activations():
    x = np.array([-1.0, 0.0, 2.0])
    assert np.allclose(silu(x), [-0.2689414, 0, 1.7615942])
    assert np.allclose(gelu_tanh(x), [-0.1588080, 0, 1.9545977])  # torch, approximate="tanh"


def test_rotation_turns_pairs():
    x = np.array([[[1.0, 10.0, 0.0, 0.0]]])  # pairs (0, 2) and (1, 3)
    cosine, sine = np.array([[[0.0, 1.0]]]), np.array([[[1.0, 0.0]]])  # a quarter, and not at all
    assert rotate(x, cosine, sine).tolist() == [[[0, 10, 1, 0]]]


def test_scores_depend_on_distances_only():
    model = tiny.make()
    q, k = np.random.default_rng(1).standard_normal((2, 1, 1, model.head_dim))

    def score(at, to):
        turn = lambda x, n: rotate(x, *model.cosines(np.array([n]), 100.0, np.float64))
        return (turn(q, at) * turn(k, to)).sum()
    assert np.isclose(score(7, 3), score(104, 100)) and not np.isclose(score(7, 3), score(7, 4))


def test_unpermute():
    rows = np.arange(8)[:, None] * np.ones((1, 2))  # two heads of four rows
    assert unpermute(rows, 4)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_groups():
    assert tiny.make("llama").groups() == [(0, [0, 1, 2])]
    assert tiny.make("gemma3").groups() == [(0, [2, 5]), (40, [0, 1, 3, 4])]


@pytest.mark.parametrize("name, shape, groups", [
    ("smollm2", (30, 9, 3, 64), [(0, 30)]), ("gemma", (18, 4, 1, 256), [(0, 3), (512, 15)])])
def test_the_real_models_are_what_they_say(models, name, shape, groups):
    model = models(name)
    assert (model.num_layers, model.num_q_heads, model.num_kv_heads, model.head_dim) == shape
    assert [(window, len(layers)) for window, layers in model.groups()] == groups
    assert name != "gemma" or model.groups()[0][1] == [5, 11, 17]


def logits_of(model, tokens, chunk=512):
    engine = Engine(model, LocalCache(model), chunk=chunk)
    sequence = engine.add(tokens, max_new=0)
    engine.run(sequence)
    return sequence.logits


@pytest.mark.parametrize("family", ("llama", "gemma3"))
def test_single_precision_is_enough(family):
    tokens = np.random.default_rng(2).integers(3, 259, 300).tolist()
    single, double = (logits_of(tiny.make(family, precision=p), tokens)
                      for p in (np.float32, np.float64))
    assert double.dtype == np.float64
    assert np.abs(single - double).max() < 1e-4


@pytest.mark.parametrize("family", ("llama", "gemma3"))
def test_chunks_make_no_difference(family):
    model, tokens = tiny.make(family), np.random.default_rng(2).integers(3, 259, 200).tolist()
    whole = logits_of(model, tokens)
    for chunk in (1, 16, 33):
        assert np.abs(logits_of(model, tokens, chunk) - whole).max() < 1e-4


def test_a_window_hides_what_is_before_it():
    model = tiny.make("gemma3")
    model.full_every = 1000  # all layers slide: 6 layers of 40 tokens see 235 tokens
    tokens = np.random.default_rng(2).integers(3, 259, 300).tolist()
    far, near = list(tokens), list(tokens)
    far[300 - 236] ^= 1
    near[300 - 20] ^= 1
    assert (logits_of(model, far) == logits_of(model, tokens)).all()
    assert (logits_of(model, near) != logits_of(model, tokens)).any()


@pytest.mark.parametrize("name", ("smollm2", "gemma"))
def test_it_answers(models, name):
    model = models(name)
    engine = Engine(model, LocalCache(model))
    prompts = [model.tokeniser.chat(facts.messages(question)) for question, _ in facts.QUESTIONS[:4]]
    shared = os.path.commonprefix(prompts)
    base = engine.add(shared, max_new=0)
    engine.run(base)
    asked = [engine.fork(base, prompt[len(shared):], 24) for prompt in prompts]
    for new, (_, word) in zip(engine.run(*asked), facts.QUESTIONS):
        assert word.lower() in model.tokeniser.decode(new).lower()


@pytest.mark.long
@pytest.mark.parametrize("name", ("smollm2",))
def test_against_double_precision(models, name):
    tokens = models(name).tokeniser.chat(facts.messages("Who is the cook?"))
    single, double = logits_of(models(name), tokens), logits_of(load(name, np.float64), tokens)
    assert np.abs(single - double).max() < 2e-4
