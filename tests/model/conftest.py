"""What the tests of the engine share: models, and the word for those that cannot be had."""

import functools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine import packages  # noqa: E402
from engine.model import load  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also what takes minutes a test")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: only with --long")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        late = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=late)
        items[:] = [item for item in items if item not in late]


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
