"""The plans that are compared, one row each. The dense f32 cache is the baseline of all.

A row says how a cache is made over a connection. Formats that lose more come here as rows.
"""

from dataclasses import dataclass

from engine.cache import DaemonCache


@dataclass(frozen=True)
class Plan:
    text: str
    dtype: str  # of K and V in blocks

    def cache(self, model, pool, salt):
        return DaemonCache(model, pool, self.dtype, salt=salt)


PLANS = {
    "f32": Plan("as computed", "f32"),
    "f16": Plan("11 bits of mantissa", "f16"),
    "bf16": Plan("8 bits of mantissa", "bf16"),
}
