"""The arithmetic of two transformers that differ in what a KV cache cares about.

What differs is one table. forward() is the whole model: it has no cache, and asks whoever has one
for the attention of each layer.
"""

import sys
from dataclasses import dataclass

import numpy as np

from . import gguf_file, packages
from .tokeniser import ByteTokeniser, CharacterTokeniser


@dataclass(frozen=True)
class Architecture:
    """What the two families do differently, and their files do not say."""
    tokeniser: type
    activation: str           # on the feed-forward's gate
    rope_base: float          # of layers that see everything
    sliding_rope_base: float  # of layers that see a window
    window: int               # what a sliding layer's query sees, itself included; 0: none slide
    full_every: int           # layers l with l % full_every == full_every - 1 see everything
    scale_embedding: bool     # by sqrt(width)
    norms_qk: bool            # each head of q and k, before RoPE
    norms_outputs: bool       # what attention and feed-forward add, once more
    pairs_are_neighbours: bool  # RoPE pairs in the file: (2i, 2i + 1), not (i, i + half)


ARCHITECTURES = {
    #                          tokeniser           activation   RoPE bases
    "llama": Architecture(     ByteTokeniser,      "silu",      100_000, 0,
                               window=0, full_every=1, scale_embedding=False, norms_qk=False,
                               norms_outputs=False, pairs_are_neighbours=True),
    "gemma3": Architecture(    CharacterTokeniser, "gelu_tanh", 1_000_000, 10_000,
                               window=512, full_every=6, scale_embedding=True, norms_qk=True,
                               norms_outputs=True, pairs_are_neighbours=False),
}


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x * x * x)))


ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}


def rms_norm(x, weight, epsilon):
    scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon)
    return x / scale * weight


def rotate(x, cosine, sine):
    """RoPE of [row][head][dim], pairs (i, i + half)."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return np.concatenate((first * cosine - second * sine, second * cosine + first * sine), axis=-1)


def unpermute(weight, head_dim):
    """Rows in pairs (2i, 2i + 1) to pairs (i, i + half): one rotation serves both families."""
    return weight.reshape(-1, head_dim // 2, 2, weight.shape[-1]).swapaxes(1, 2).reshape(weight.shape)


class Model:
    """Weights and geometry. precision: float32, or float64 for a run to compare with."""

    def __init__(self, name, revision, metadata, weights, precision=np.float32):
        family = metadata["general.architecture"]
        self.name, self.revision, self.architecture = name, revision, ARCHITECTURES[family]
        number = lambda key, default=None: metadata.get(f"{family}.{key}", default)
        self.num_layers, self.width = number("block_count"), number("embedding_length")
        self.num_q_heads = number("attention.head_count")
        self.num_kv_heads = number("attention.head_count_kv")
        self.head_dim = number("attention.key_length", self.width // self.num_q_heads)
        self.epsilon = number("attention.layer_norm_rms_epsilon")
        self.max_tokens = number("context_length")
        self.window = number("attention.sliding_window", self.architecture.window)
        self.full_every = number("full_every", self.architecture.full_every)
        self.tokeniser = self.architecture.tokeniser(metadata)
        as_is = lambda w: w if w.dtype == precision else w.astype(precision)
        self.embedding = as_is(weights["token_embd.weight"])
        self.output_norm = as_is(weights["output_norm.weight"])
        self.layers = [{key.split(".")[2]: as_is(w) for key, w in weights.items()
                        if key.startswith(f"blk.{layer}.")} for layer in range(self.num_layers)]
        if self.architecture.pairs_are_neighbours:
            for layer in self.layers:
                for key in ("attn_q", "attn_k"):
                    layer[key] = unpermute(layer[key], self.head_dim)

    def slides(self, layer):
        return self.window > 0 and layer % self.full_every != self.full_every - 1

    def groups(self):
        """Layers by window, 0 first: [(window, layers)], each what the daemon calls a layer group."""
        kinds = [(0, False), (self.window, True)]
        found = [(window, [l for l in range(self.num_layers) if self.slides(l) == sliding])
                 for window, sliding in kinds]
        return [(window, layers) for window, layers in found if layers]

    def cosines(self, positions, base, like):
        half = self.head_dim // 2
        angles = positions[:, None] / base ** (np.arange(half) / half)
        return np.cos(angles)[:, None].astype(like), np.sin(angles)[:, None].astype(like)

    def forward(self, tokens, positions, attend, rows=slice(None)):
        """Logits after the tokens in @rows. attend(layer, q, k, v): [row][head][dim], all rows'."""
        arch, eps = self.architecture, self.epsilon
        act = ACTIVATIONS[arch.activation]
        x = np.array(self.embedding[tokens])
        if arch.scale_embedding:
            x *= np.sqrt(self.width).astype(x.dtype)
        ropes = [self.cosines(positions, base, x.dtype)
                 for base in (arch.rope_base, arch.sliding_rope_base) if base]
        for number, w in enumerate(self.layers):
            h = rms_norm(x, w["attn_norm"], eps)
            q = (h @ w["attn_q"].T).reshape(len(x), self.num_q_heads, self.head_dim)
            k = (h @ w["attn_k"].T).reshape(len(x), self.num_kv_heads, self.head_dim)
            v = (h @ w["attn_v"].T).reshape(len(x), self.num_kv_heads, self.head_dim)
            if arch.norms_qk:
                q, k = rms_norm(q, w["attn_q_norm"], eps), rms_norm(k, w["attn_k_norm"], eps)
            rope = ropes[self.slides(number)]
            a = attend(number, rotate(q, *rope), rotate(k, *rope), v)
            a = a.reshape(len(x), -1) @ w["attn_output"].T
            x += rms_norm(a, w["post_attention_norm"], eps) if arch.norms_outputs else a
            h = rms_norm(x, w["ffn_norm"], eps)
            h = (act(h @ w["ffn_gate"].T) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
            x += rms_norm(h, w["post_ffw_norm"], eps) if arch.norms_outputs else h
        return rms_norm(x[rows], self.output_norm, eps) @ self.embedding.T


def load(name, precision=np.float32):
    """smollm2 or gemma, downloaded on first use; "tiny-llama" or "tiny-gemma3" are made up."""
    if name.startswith("tiny"):
        from . import tiny
        return tiny.make(name.partition("-")[2])
    metadata, weights = gguf_file.load(packages.model_directory(name))
    return Model(name, packages.MODELS[name].sha256, metadata, weights, precision)


def load_or_make(name):
    """load(), or where its packages cannot be had a tiny model that was made up; says so."""
    try:
        return load(name)
    except packages.Unavailable as why:
        print(f"{why}\nInstead, a tiny random model made from a seed: its answers mean nothing.",
              file=sys.stderr, flush=True)
        return load(packages.MODELS[name].stand_in)
