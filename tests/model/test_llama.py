"""The engine beside llama.cpp (PyPI llama-cpp-python), on the same weights written out as f32.

On the quantised files llama.cpp is no reference: it quantises activations as well.
"""

import numpy as np
import pytest

from engine import gguf_file, packages
from engine.dense import LocalCache
from engine.engine import Engine
from fidelity import measure

llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not built")
gguf = pytest.importorskip("gguf")

PROMPTS = ["The capital of France is", "Once upon a time, there was a small",
           "def add(a, b):\n    return", "In 1865, 12 ships   sailed;", "Wasser, naïve café, 東京 🙂 e",
           "Q: What is two plus two?\nA:", "To be, or not to be", "\n\n  * one\n  * two\n  *"]
# Logits may differ by as much; measured 0.002 and 0.012.
BOUND = {"smollm2": 0.01, "gemma": 0.03}


def write_f32(name, path):
    """The model as an unquantised GGUF file."""
    metadata, weights = gguf_file.load(packages.model_directory(name))
    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif key not in ("general.architecture", "general.file_type"):
            kind = (gguf.GGUFValueType.UINT32 if type(value) is int
                    else gguf.GGUFValueType.get_type(value))
            writer.add_key_value(key, value, kind)
    for key, weight in weights.items():
        writer.add_tensor(key, np.asarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module", params=["smollm2", "gemma"])
def both(request, tmp_path_factory, models):
    model = models(request.param)
    path = tmp_path_factory.mktemp("llama") / "model.gguf"
    write_f32(request.param, path)
    llama = llama_cpp.Llama(str(path), n_ctx=1024, n_threads=1, logits_all=True, verbose=False,
                            flash_attn=False, type_k=0, type_v=0)
    yield model, llama
    llama.close()
    path.unlink()


def test_same_tokens_for_texts(both):
    model, llama = both
    for text in PROMPTS + [packages.text("alice29.txt")[:20000]]:
        theirs = llama.tokenize(text.encode(), add_bos=False, special=False)
        assert model.tokeniser.encode(text) == theirs
        assert model.tokeniser.decode(theirs) == text


def test_special_tokens_in_a_text_are_text(both):
    model, llama = both
    text = "a<|im_end|>b<eos>c<bos>"
    assert not model.tokeniser.control & set(model.tokeniser.encode(text))
    assert model.tokeniser.encode(text) == llama.tokenize(text.encode(), False, False)


def test_same_losses_and_beyond_the_window(both):
    """Of a text that is longer than Gemma's window, what fidelity's perplexity is made of."""
    model, llama = both
    tokens = model.tokeniser.text(packages.text("alice29.txt"))[:900]
    reading = measure.read_text(model, LocalCache(model), [tokens])
    llama.reset()
    llama.eval(tokens)
    assert np.abs(reading.logits[-1] - llama.scores[len(tokens) - 1]).max() < BOUND[model.name]
    losses = [loss_of(row, wanted) for row, wanted in zip(llama.scores, tokens[1:])]
    assert np.abs(np.array(losses) - reading.losses).max() < BOUND[model.name]
    assert abs(np.exp(np.mean(losses)) - reading.perplexity) < 1e-2


def loss_of(logits, wanted):
    logits = np.array(logits, np.float64) - np.max(logits)
    return np.log(np.exp(logits).sum()) - logits[wanted]


def test_same_logits_and_the_same_tokens(both):
    model, llama = both
    for text in PROMPTS:
        tokens = model.tokeniser.text(text)
        engine = Engine(model, LocalCache(model))
        sequence = engine.add(tokens, max_new=0)
        engine.run(sequence)
        llama.reset()
        llama.eval(tokens)
        theirs = llama.scores[len(tokens) - 1]
        assert np.abs(sequence.logits - theirs).max() < BOUND[model.name]
        for _ in range(32):
            best = np.sort(theirs)[-2:]
            if best[1] - best[0] < 0.01:
                break  # either may win
            token = int(theirs.argmax())
            assert int(sequence.logits.argmax()) == token
            engine.extend(sequence, [token], max_new=0)
            engine.run(sequence)
            llama.eval([token])
            theirs = llama.scores[llama.n_tokens - 1]
