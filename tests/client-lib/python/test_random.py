"""Runs machine.py: pytest test_random.py --examples 100000 for a long time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import Bed, PoolMachine


@pytest.fixture(params=["rings", "messages"])
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    bed = Bed(rings=request.param == "rings")
    if bed.pools[0].uses_rings != (request.param == "rings"):
        bed.finish()
        pytest.skip("libkvpool was not found")
    yield bed
    bed.finish()


def test_a_pool_is_what_its_model_says(bed: Bed, pytestconfig: pytest.Config) -> None:
    """Half of the examples by rings, half by messages."""

    class Machine(PoolMachine):
        pass

    Machine.bed = bed
    chosen = settings(
        max_examples=pytestconfig.getoption("examples") // 2,
        stateful_step_count=30,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    run_state_machine_as_test(Machine, settings=chosen)
