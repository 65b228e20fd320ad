"""What a run's models cost, and the rules that refuse its calls once that is too much; counted once, whatever crashes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.connectors.egress import Egress
from appliance.core.crypto import Sealer
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.governance import model_cost
from appliance.llm import LanguageModels, Profile, usage
from tests.agents.model_server import USAGE, Call, ModelServer, Turn, script
from tests.agents.world import ALLOW, TAINTED, World, book, mark, open_world
from tests.processes.host.test_journal import MOST_WRITES, PowerCut, power_cut

A_TURN = (USAGE[0] * 1 + USAGE[1] * 2) / 1_000_000
"""What one answer costs at these prices."""
PRICE = {"currency": "EUR", "input": 1, "output": 2}


def no_secret(scope: TenantScope, name: str) -> str:
    raise NotFound(name)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    model_server = ModelServer(script("nothing"))
    yield model_server
    model_server.close()


@pytest.fixture
def world(tmp_path: Path, server: ModelServer) -> Iterator[World]:
    with open_world(tmp_path) as opened:
        opened.llm = LanguageModels(Egress.of([f"127.0.0.1:{server.port}"]), Sealer(b"k" * 32), no_secret)
        settings = {"kind": "openai", "model": "small", "base_url": server.url, "price": PRICE}
        opened.llm.put_profile(opened.scope, "default", Profile.model_validate(settings), "sk-test")
        yield opened


def model_calling(*requested: tuple[str, dict[str, Any]]) -> Turn:
    """A model that asks for one of these in each turn, then is done, however often it is asked for the same turn."""
    answers = [*(Call(*each) for each in requested), "done"]
    return lambda messages, tools: answers[sum(message.role == "assistant" for message in messages)]


def cap_cost(world: World, turns: int) -> None:
    """One agent, whose rule allows its calls as long as its models have cost less than so many answers."""
    world.make(rules=[{**each, "obligations": {"cost_per_run": A_TURN * turns}} for each in (ALLOW, TAINTED)])


def test_a_run_that_has_cost_too_much_makes_no_more_calls(world: World, server: ModelServer) -> None:
    cap_cost(world, 2)
    server.turn = model_calling(mark("one"), mark("two"), book(amount=3))
    for _ in range(2):  # what another run has cost is not its own
        run = world.drive(world.start())
        assert (run.status, run.output) == ("succeeded", "done")
        returned = [entry.data for entry in world.journal(run.id) if entry.kind == "returned"]
        assert [each["ok"] for each in returned] == [True, False, False]
        assert [each["error"]["reason"] for each in returned[1:]] == ["cost_per_run"] * 2
        assert model_cost(world.scope, run.id) == pytest.approx(4 * A_TURN) == pytest.approx(run.cost)
    assert world.marks() == ["one", "one"]
    assert world.booked() == []


def test_an_answer_is_charged_once_after_a_crash(world: World, server: ModelServer) -> None:
    cap_cost(world, 9)
    server.turn = model_calling(mark("one"))
    lost = 0
    for number in range(1, MOST_WRITES):
        run_id, cut = world.start(), False
        try:
            with power_cut(number, "before"):
                world.drive(run_id)
        except PowerCut:
            cut = True
            world.restart()
        run = world.drive(run_id)
        assert run.status == "succeeded", (number, run.error)
        used = usage.used_by_run(world.scope, run_id)
        assert used.calls in ({2, 3} if cut else {2}), number  # an answer that the crash lost was paid for too
        if used.calls == 2:
            assert model_cost(world.scope, run_id) == pytest.approx(2 * A_TURN) == pytest.approx(run.cost), number
        else:
            lost += 1
            assert model_cost(world.scope, run_id) > 2 * A_TURN, number
        if not cut:
            break
    assert lost == 2  # one write journals each of the two answers
    assert 8 < number < MOST_WRITES
