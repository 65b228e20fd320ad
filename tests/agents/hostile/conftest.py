"""One trap for all scenarios, in the appliance that all tests share."""

from collections.abc import Iterator

import pytest

from appliance.testing.running import Running
from tests.agents.model_server import obey, serving

from .trap import Trap


@pytest.fixture(scope="session")
def built(running: Running) -> Iterator[Trap]:
    with running.api("trap") as client, running.api("lair") as theirs, serving(obey()) as model:
        trap = Trap(running, client, theirs, model)
        trap.build()
        yield trap
        trap.close()


@pytest.fixture
def trap(built: Trap) -> Trap:
    built.reset()
    return built
