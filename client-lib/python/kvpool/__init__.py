"""Asks kvpoold for KV-cache memory: sequences, attention over them, and what others computed.

    import numpy as np
    import kvpool

    model = kvpool.Model(name="m", weights_revision="1", num_layers=2, num_q_heads=4,
                         num_kv_heads=2, k_head_dim=64, v_head_dim=64)
    with kvpool.Pool() as pool:
        pool.register_model(model)
        found = pool.allocate(1, kvpool.Prompt(model, tokens), unfilled=True)
        new = tokens[found.matched:]  # the rest is cached
        with pool.stepping(model, {1: new}) as step:
            for layer in range(model.num_layers):
                out = pool.attend(step, layer, q, k, v)

Pool is a connection for plain code, AsyncPool for asyncio, Pool.later for many requests at a time;
all have the verbs of EngineVerbs. Operator and AsyncOperator have those of OperatorVerbs. A verb
returns only if the daemon answered OK, else it raises one of kvpool.errors, and has changed nothing;
but after Timeout or Disconnected it may have been carried out all the same.
Tokens are u32 ids, lengths count tokens, sizes bytes, times seconds unless a name says otherwise.
"""

from .arena import Arena, Attachment
from .core import Options, Pending
from .errors import (
    Busy,
    Cancelled,
    Denied,
    Disconnected,
    Draining,
    Exists,
    Failed,
    Invalid,
    KvpoolError,
    Limit,
    Malformed,
    Miss,
    NeverFits,
    NoBlocks,
    NotFound,
    Overloaded,
    Quota,
    Stale,
    Timeout,
    Unsupported,
)
from .model import (
    BF16,
    F16,
    F32,
    OPAQUE,
    Extra,
    LayerGroup,
    Matched,
    Model,
    ModelShape,
    Prefetched,
    Prompt,
    State,
    Table,
    bf16_from_f32,
    f32_from_bf16,
)
from .operator_verbs import OperatorVerbs
from .pool import AsyncOperator, AsyncPool, Later, Operator, Pool
from .staging import Staging
from .step import Shapes, Step
from .verbs import EngineVerbs

__all__ = [
    "BF16",
    "F16",
    "F32",
    "OPAQUE",
    "Arena",
    "AsyncOperator",
    "AsyncPool",
    "Attachment",
    "Busy",
    "Cancelled",
    "Denied",
    "Disconnected",
    "Draining",
    "EngineVerbs",
    "Exists",
    "Extra",
    "Failed",
    "Invalid",
    "KvpoolError",
    "Later",
    "LayerGroup",
    "Limit",
    "Malformed",
    "Matched",
    "Miss",
    "Model",
    "ModelShape",
    "NeverFits",
    "NoBlocks",
    "NotFound",
    "Operator",
    "OperatorVerbs",
    "Options",
    "Overloaded",
    "Pending",
    "Pool",
    "Prefetched",
    "Prompt",
    "Quota",
    "Shapes",
    "Staging",
    "Stale",
    "State",
    "Step",
    "Table",
    "Timeout",
    "Unsupported",
    "bf16_from_f32",
    "f32_from_bf16",
]
