"""Text to tokens and back, for both families, and how each is asked.

Both merge the best neighbouring pair again and again, leftmost first on ties. They differ in what the
first symbols are (bytes in disguise, or characters), what is best (place in a list of merges, or the
merged token's score), and what is cut apart before.
"""

import codecs
import heapq
from functools import lru_cache

import regex

CONTROL, USER_DEFINED = 3, 4  # token types
# GPT-2's words. `regex`, not `re`: its \s and \p{L} are the ones that the model was trained with.
WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
DIGIT = regex.compile(r"(\p{N})")


def merge(symbols, rank):
    """Merges the pair of the lowest rank(left, right) until no pair has one (None)."""
    symbols = list(symbols)
    following = list(range(1, len(symbols) + 1))
    before = list(range(-1, len(symbols) - 1))
    heap = []

    def look(left):
        right = following[left]
        if right < len(symbols):
            value = rank(symbols[left], symbols[right])
            if value is not None:
                heapq.heappush(heap, (value, left, symbols[left], symbols[right]))

    for left in range(len(symbols) - 1):
        look(left)
    while heap:
        _, left, first, second = heapq.heappop(heap)
        right = following[left]
        if symbols[left] != first or right >= len(symbols) or symbols[right] != second:
            continue  # one of the two has been merged into something else meanwhile
        symbols[left], symbols[right] = first + second, None
        following[left] = following[right]
        if following[left] < len(symbols):
            before[following[left]] = left
        look(left)
        if before[left] >= 0:
            look(before[left])
    return [symbol for symbol in symbols if symbol]


def byte_letters():
    """GPT-2's letter for each byte: itself where that prints, else one from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(other)) for byte in range(256)]


class Tokeniser:
    """What both share: special tokens, streaming decode. encode() never makes a control token."""

    def __init__(self, metadata):
        self.tokens = metadata["tokenizer.ggml.tokens"]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        kinds = metadata["tokenizer.ggml.token_type"]
        self.control = {i for i, kind in enumerate(kinds) if kind == CONTROL}
        self.user_defined = [t for t, kind in zip(self.tokens, kinds) if kind == USER_DEFINED]

    def token_bytes(self, token):
        raise NotImplementedError

    def decode(self, tokens):
        return b"".join(self.token_bytes(token) for token in tokens).decode("utf-8", "replace")

    def decoder(self):
        """Returns a function from the next token to the text that is sure by now; of None, the rest."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        return lambda token: (decode(b"", final=True) if token is None else
                              decode(self.token_bytes(token)))


class ByteTokeniser(Tokeniser):
    """SmolLM2: digits alone, then GPT-2's words, each merged from its bytes."""

    start, end = 1, 2  # <|im_start|>, <|im_end|>
    stops = frozenset((0, 2))

    def __init__(self, metadata):
        super().__init__(metadata)
        ranks = {tuple(pair.split(" ")): rank
                 for rank, pair in enumerate(metadata["tokenizer.ggml.merges"])}
        self.letters = byte_letters()
        self.bytes = {letter: byte for byte, letter in enumerate(self.letters)}
        self.rank = lambda left, right: ranks.get((left, right))
        self.word = lru_cache(65536)(self.word)

    def word(self, word):
        letters = (self.letters[byte] for byte in word.encode("utf-8"))
        # Some byte values have no token and are dropped, as they were in training.
        return [self.ids[symbol] for symbol in merge(letters, self.rank) if symbol in self.ids]

    def encode(self, text):
        return [token for part in DIGIT.split(text) for word in WORDS.findall(part)
                for token in self.word(word)]

    def token_bytes(self, token):
        if token in self.control:
            return b""
        return bytes(self.bytes[letter] for letter in self.tokens[token])

    def turn(self, role, text):
        """One turn of a chat. "\\n\\n" is one token only inside a text: cut shared prefixes here."""
        return [self.start, *self.encode(f"{role}\n{text}"), self.end, *self.encode("\n")]

    def chat(self, messages):
        """Turns of {"role", "content"}, and the beginning of the answer."""
        if not messages or messages[0]["role"] != "system":
            messages = [{"role": "system", "content": "You are a helpful AI assistant named SmolLM, "
                         "trained by Hugging Face"}, *messages]
        turns = (self.turn(m["role"], m["content"]) for m in messages)
        return [t for turn in turns for t in turn] + self.answer()

    def answer(self):
        """The beginning of an answer's turn."""
        return [self.start, *self.encode("assistant\n")]

    def next_turn(self, text, is_stopped=True):
        """What comes after an answer, which ended with its stop token, or in the middle."""
        end = [] if is_stopped else [self.end]
        return end + self.encode("\n") + self.turn("user", text) + self.answer()

    def text(self, text):
        return self.encode(text)  # the file names a first token, but the model was trained without


class CharacterTokeniser(Tokeniser):
    """Gemma: no words; runs of spaces and newlines are tokens of their own, cut out first."""

    first = 2
    stops = frozenset((1, 108))  # end of text, "\n\n": this checkpoint has no turns

    def __init__(self, metadata):
        super().__init__(metadata)
        scores = metadata["tokenizer.ggml.scores"]
        longest_first = sorted(self.user_defined, key=len, reverse=True)
        self.fixed = regex.compile("|".join(map(regex.escape, longest_first)) or "(?!)")
        self.first_byte = self.ids["<0x00>"]

        def rank(left, right):
            token = self.ids.get(left + right)
            return None if token is None else -scores[token]
        self.rank = rank

    def piece(self, text):
        for symbol in merge(text.replace(" ", "\u2581"), self.rank):
            token = self.ids.get(symbol)
            if token is not None and token not in self.control:
                yield token
            else:
                yield from (self.first_byte + byte for byte in symbol.encode("utf-8"))

    def encode(self, text):
        tokens, at = [], 0
        for match in self.fixed.finditer(text):
            tokens += [*self.piece(text[at:match.start()]), self.ids[match[0]]]
            at = match.end()
        return tokens + [*self.piece(text[at:])]

    def token_bytes(self, token):
        if self.first_byte <= token < self.first_byte + 256:
            return bytes([token - self.first_byte])
        if token in self.control:
            return b""
        return self.tokens[token].replace("\u2581", " ").encode("utf-8")

    def turn(self, role, text):
        """A base model has no turns: what it continues well is a text of facts, then questions.
        Each part ends with "\\n\\n", one token that no further text can move."""
        forms = {"system": "{}\n\n", "user": "Question: {}\nAnswer:", "assistant": " {}\n\n"}
        return self.encode(forms[role].format(text))

    def chat(self, messages):
        return [self.first, *(t for m in messages for t in self.turn(m["role"], m["content"]))]

    def next_turn(self, text, is_stopped=True):
        return ([] if is_stopped else self.encode("\n\n")) + self.turn("user", text)

    def text(self, text):
        return [self.first, *self.encode(text)]
