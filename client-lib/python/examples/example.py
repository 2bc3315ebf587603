"""An engine in miniature: two continuations of one prompt, computed once."""

import kvpool
import numpy as np

MODEL = kvpool.Model(
    name="example-py", weights_revision="1", num_layers=2,
    num_q_heads=4, num_kv_heads=2, k_head_dim=64, v_head_dim=64,
)  # fmt: skip
PROMPT = list(range(40))


def forward(pool: kvpool.Pool, sequence: int, tokens: list[int]) -> None:
    """One forward pass: tokens are appended to the sequence, layer by layer."""
    with pool.stepping(MODEL, {sequence: tokens}) as step:
        for layer in range(MODEL.num_layers):
            # An engine projects this layer's input to q, k and v here: [row][head][dim].
            q = np.zeros((step.num_rows, 4, 64), np.float32)
            k = v = np.ones((step.num_rows, 2, 64), np.float32)
            out = pool.attend(step, layer, q, k, v)  # [row][q_head][dim], in shared memory
            assert np.allclose(out, 1)  # as all of v is


with kvpool.Pool() as pool:  # sequences end with it; what is cached stays
    pool.register_model(MODEL)
    found = pool.allocate(1, kvpool.Prompt(MODEL, PROMPT), unfilled=True)
    forward(pool, 1, PROMPT[found.matched :])  # the rest somebody of our tenant computed before
    pool.fork(1, 2)  # shares every block, and costs nothing yet
    for sequence, token in ((1, 100), (2, 200)):
        forward(pool, sequence, [token])
    print(f"{found.matched} of {len(PROMPT)} tokens were cached")
