"""One trap for all scenarios, in the appliance that all tests share."""

from collections.abc import Iterator

import pytest

from appliance.testing.running import Running
from tests.agents.model_server import obey, serving

from .trap import Trap


@pytest.fixture(scope="session")
def built(running: Running) -> Iterator[Trap]:
    agent_key = {"X-API-Key": running.key("trap", kind="agent")}
    with (
        running.api("trap") as client, running.client("trap.localhost", agent_key) as agent, running.api("lair") as theirs,
        serving(obey()) as model,
    ):  # fmt: skip
        trap = Trap(running, client, agent, theirs, model)
        trap.build()
        yield trap
        trap.close()


@pytest.fixture
def trap(built: Trap) -> Trap:
    built.reset()
    return built
