"""Tiny random models of both families: they say nothing sensible, but cache like real ones.

What layers add outweighs the embedding, or each token would only repeat itself.

For tests that should run anywhere, and for an engine whose model's packages cannot be had.
"""

import hashlib

import numpy as np

from .model import Model
from .tokeniser import byte_letters

WIDTH, FEED, Q_HEADS, KV_HEADS, HEAD_DIM = 48, 96, 4, 2, 16
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WINDOW = {"llama": 0, "gemma3": 40}
NUM_LAYERS = {"llama": 3, "gemma3": 6}


def draw_weights(family, num_tokens, seed):
    rng = np.random.default_rng(seed)
    shapes = {"attn_q": (Q_HEADS * HEAD_DIM, WIDTH), "attn_k": (KV_HEADS * HEAD_DIM, WIDTH),
              "attn_v": (KV_HEADS * HEAD_DIM, WIDTH), "attn_output": (WIDTH, Q_HEADS * HEAD_DIM),
              "ffn_gate": (FEED, WIDTH), "ffn_up": (FEED, WIDTH), "ffn_down": (WIDTH, FEED)}
    norms = {"attn_norm": WIDTH, "ffn_norm": WIDTH, "attn_q_norm": HEAD_DIM,
             "attn_k_norm": HEAD_DIM, "post_attention_norm": WIDTH, "post_ffw_norm": WIDTH}
    weights = {"token_embd.weight": rng.standard_normal((num_tokens, WIDTH), np.float32),
               "output_norm.weight": np.ones(WIDTH, np.float32)}
    for layer in range(NUM_LAYERS[family]):
        for key, (rows, columns) in shapes.items():
            drawn = rng.standard_normal((rows, columns), np.float32)
            gain = 4 if key in ("attn_output", "ffn_down") else 1
            weights[f"blk.{layer}.{key}.weight"] = drawn * np.float32(gain / columns ** 0.5)
        for key, size in norms.items():
            gain = 8 if key.startswith("post") else 1
            drawn = rng.standard_normal(size, np.float32)
            weights[f"blk.{layer}.{key}.weight"] = np.float32(gain) * (1 + drawn / 4)
    return weights


def make(family="llama", seed=1, precision=np.float32):
    """A token a byte; three layers that see everything, or two of those and four that slide."""
    letters = byte_letters() if family == "llama" else [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = SPECIAL + letters + ["\u2581"]
    weights = draw_weights(family, len(tokens), seed)
    digest = hashlib.sha256(b"".join(weights[key].tobytes() for key in sorted(weights)))
    metadata = {
        "general.architecture": family,
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": [],
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(letters) + 1),
    } | {f"{family}.{key}": value for key, value in {
        "block_count": NUM_LAYERS[family], "embedding_length": WIDTH, "context_length": 8192,
        "attention.head_count": Q_HEADS, "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM, "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": WINDOW[family], "full_every": 3 if WINDOW[family] else 1,
    }.items()}
    return Model(f"tiny-{family}", digest.hexdigest(), metadata, weights, precision)
