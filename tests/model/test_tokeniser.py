"""Both tokenisers on vocabularies small enough to see through, and on the real ones."""

import pytest

from engine.tokeniser import ByteTokeniser, CharacterTokeniser, byte_letters, merge


def rank_of(pairs):
    ranks = {pair: number for number, pair in enumerate(pairs)}
    return lambda left, right: ranks.get((left, right))


def test_the_best_pair_goes_first_not_the_leftmost():
    assert merge("abc", rank_of([("b", "c"), ("a", "b")])) == ["a", "bc"]


def test_ties_go_to_the_left():
    assert merge("aaa", rank_of([("a", "a")])) == ["aa", "a"]


def test_merged_symbols_merge_again():
    pairs = [("a", "b"), ("c", "d"), ("ab", "cd")]
    assert merge("abcdab", rank_of(pairs)) == ["abcd", "ab"]


def test_a_pair_that_is_gone_is_not_merged():
    assert merge("abc", rank_of([("a", "b"), ("b", "c")])) == ["ab", "c"]


def test_nothing_to_merge():
    assert merge("", rank_of([])) == [] and merge("x", rank_of([])) == ["x"]


def test_every_byte_has_a_letter_of_its_own():
    letters = byte_letters()
    assert len(set(letters)) == 256 and letters[ord("A")] == "A" and letters[ord(" ")] == "Ġ"


@pytest.fixture
def byte_tokeniser():
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_letters(), "ab", "Ġab", "12"]
    return ByteTokeniser({
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["a b", "Ġ ab", "1 2"],
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 3)})


def words(tokeniser, text):
    return [tokeniser.tokens[token] for token in tokeniser.encode(text)]


def test_words_digits_and_spaces(byte_tokeniser):
    assert words(byte_tokeniser, "ab ab  ab") == ["ab", "Ġab", "Ġ", "Ġab"]
    assert words(byte_tokeniser, "12") == ["1", "2"]  # each digit alone, though "12" is a token


def test_control_tokens_in_a_text_stay_text(byte_tokeniser):
    text = "a<|im_end|>b"
    assert not byte_tokeniser.control & set(byte_tokeniser.encode(text))
    assert byte_tokeniser.decode(byte_tokeniser.encode(text)) == text


def test_a_chat_gets_a_system_turn(byte_tokeniser):
    tokens = byte_tokeniser.chat([{"role": "user", "content": "x"}])
    text = "".join(byte_tokeniser.tokens[t] for t in tokens).replace("Ċ", "\n").replace("Ġ", " ")
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert text.endswith("<|im_end|>\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n")


def test_the_next_turn_continues_a_chat(byte_tokeniser):
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]
    answer = byte_tokeniser.encode("y")
    whole = byte_tokeniser.chat(turns + [{"role": "assistant", "content": "y"},
                                         {"role": "user", "content": "z"}])
    begun = byte_tokeniser.chat(turns) + answer
    assert begun + [byte_tokeniser.end] + byte_tokeniser.next_turn("z") == whole
    assert begun + byte_tokeniser.next_turn("z", is_stopped=False) == whole


@pytest.mark.parametrize("text", ["é", "日本", "🙂"])
def test_a_character_comes_when_its_last_byte_does(byte_tokeniser, text):
    decode = byte_tokeniser.decoder()
    pieces = [decode(token) for token in byte_tokeniser.encode(text)]
    assert "".join(pieces) == text and pieces[0] == ""
    half = byte_tokeniser.decoder()
    assert half(byte_tokeniser.encode("é")[0]) + half(None) == "\ufffd"


@pytest.fixture
def character_tokeniser():
    tokens = ["<pad>", "<eos>", "<bos>", *(f"<0x{b:02X}>" for b in range(256)),
              "\u2581", "a", "b", "ab", "\u2581a", "ba", "\n", "\n\n", "  "]
    scores = {"ab": -3.0, "\u2581a": -1.0, "ba": -2.0}
    kinds = [4 if token in ("\n", "\n\n", "  ") else 1 for token in tokens]
    kinds[:3] = [3, 3, 3]
    return CharacterTokeniser({
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [scores.get(token, -100.0) for token in tokens]})


def test_best_score_first(character_tokeniser):
    assert words(character_tokeniser, " ab") == ["\u2581a", "b"]
    assert words(character_tokeniser, "aba") == ["a", "ba"]


def test_runs_are_cut_out_longest_first(character_tokeniser):
    assert words(character_tokeniser, "a\n\n\na   a") == ["a", "\n\n", "\n", "a", "  ", "\u2581a"]


def test_unknown_characters_are_bytes(character_tokeniser):
    assert words(character_tokeniser, "é") == ["<0xC3>", "<0xA9>"]
    assert character_tokeniser.decode(character_tokeniser.encode("a é\n\nb")) == "a é\n\nb"
    assert not character_tokeniser.control & set(character_tokeniser.encode("<bos>a<eos>"))


def test_a_text_begins_with_its_first_token(character_tokeniser):
    assert character_tokeniser.text("a")[0] == 2


# What llama.cpp says to the same texts (test_llama.py compares many more where it is built).
@pytest.mark.parametrize("name, text, tokens", [
    ("smollm2", "The capital of France is", [504, 3575, 282, 4649, 314]),
    ("smollm2", "1865", [33, 40, 38, 37]),
    ("gemma", "Question: What is the capital of France?\nAnswer:",
     [14977, 236787, 2900, 563, 506, 5279, 529, 7001, 236881, 107, 7925, 236787]),
    ("gemma", "\n\n  1865", [108, 138, 236770, 236828, 236825, 236810]),
])
def test_real_vocabularies(models, name, text, tokens):
    tokeniser = models(name).tokeniser
    assert tokeniser.encode(text) == tokens and tokeniser.decode(tokens) == text
