"""What a cache costs the model: python3 -m fidelity, in tests/. See __main__.py."""

import engine  # noqa: F401 - one thread for OpenBLAS, before numpy comes
