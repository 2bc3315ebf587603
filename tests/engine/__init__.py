"""A small transformer engine that keeps its K and V in kvpoold.

model.py is the arithmetic, cache.py where K and V are, engine.py who runs when: read these three, and
dense.py, the cache that the daemon is compared with. tokeniser.py is the text, packages.py and
gguf_file.py bring weights, tiny.py makes them up. `python3 -m engine` has what people can try.
"""

import os
from pathlib import Path

# With more threads OpenBLAS spins against the daemon and other engines: 5 to 10 times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Where the programs are: $KVPOOLD_BUILD, or build/. With the library that is there, steps go by shared memory.
BUILT = Path(os.environ.get("KVPOOLD_BUILD") or Path(__file__).resolve().parents[2] / "build")
LIBRARY = BUILT / "client-lib" / "libkvpool.so"
if LIBRARY.exists():
    os.environ.setdefault("KVPOOL_LIBRARY", str(LIBRARY))

MODELS = ("smollm2", "gemma", "tiny-llama", "tiny-gemma3")  # of --model: two real, two made up
