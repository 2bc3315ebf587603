"""What the tests of the engine share: models, and the word for those that cannot be had."""

import functools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine import packages  # noqa: E402
from engine.model import load  # noqa: E402


REAL = ("smollm2", "gemma")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also what takes minutes a test")
    parser.addoption("--of", choices=("tiny", *REAL), help="only the tests of this model")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: only with --long")


def model_of(item):
    """The real model that a test is parametrised with; else it makes do with tiny ones."""
    words = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return next((name for name in REAL if name in words), "tiny")


def pytest_collection_modifyitems(config, items):
    of, is_long = config.getoption("--of"), config.getoption("--long")
    out = [item for item in items if of not in (None, model_of(item)) or
           item.get_closest_marker("long") and not is_long]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def pytest_sessionfinish(session, exitstatus):
    """77, which meson counts as skipped, where nothing could run."""
    said = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus in (0, 5) and not said.get("passed"):
        session.exitstatus = 77


@pytest.fixture(scope="session")
def models():
    """A function from a name to a loaded model; skips the test where its packages cannot be had."""
    @functools.cache
    def loaded(name):
        try:
            return load(name)
        except packages.Unavailable as why:
            return why

    def get(name):
        model = loaded(name)
        if isinstance(model, packages.Unavailable):
            pytest.skip(f"the packages of {name} cannot be had: {model}")
        return model
    return get
