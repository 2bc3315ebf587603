"""A small transformer engine that keeps its K and V in kvpoold.

model.py is the arithmetic, cache.py where K and V are (the daemon, or a dense cache of our own to
compare with), engine.py who runs when: read these three. tokeniser.py is the text, packages.py and
gguf_file.py bring weights, tiny.py makes them up. `python3 -m engine` has what people can try.
"""

import os

# With more threads OpenBLAS spins against the daemon and other engines: 5 to 10 times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
