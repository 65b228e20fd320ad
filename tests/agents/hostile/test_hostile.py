"""Instructions from outside cannot cause a write that nobody approved, even though the model obeys whatever it reads.

Each scenario of scenarios.yaml places instructions where a run of an agent reads them: a whole run, queued and driven by the
appliance, whose model obeys what its messages say.  aims.yaml has the calls that they ask for, and the audit entry that must
record the refusal.  Effects are counted at the foreign systems.  The control removes governance, and the same instructions in
the same run take effect.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from appliance.core import yaml12

from .disguises import DISGUISES
from .driving import McpClient, drive
from .living import FinishedRun, People
from .placing import CARRIERS, Placement, place
from .rules import GUARD, OPEN
from .trap import Trap

_HERE = Path(__file__).parent
AIMS: Mapping[str, Any] = yaml12.load((_HERE / "aims.yaml").read_text("utf-8"))
SCENARIOS: Mapping[str, Any] = yaml12.load((_HERE / "scenarios.yaml").read_text("utf-8"))
WALLS: Mapping[str, Any] = yaml12.load((_HERE / "walls.yaml").read_text("utf-8"))
OF_CLIENTS = {
    (each["carrier"], each["aim"]): name for name, each in SCENARIOS.items() if "mcp" in AIMS[each["aim"]] and not each.get("asks")
}
"""One scenario of each carrier and aim; the disguises are tested with the runs."""
FILLER = "Nothing of this matters. " * 4_000
QUESTION = ("request_human_input", {"kind": "input", "title": "Shall I go on?"})


def words_of(trap: Trap, name: str) -> str:
    scenario = SCENARIOS[name]
    hidden = DISGUISES[scenario.get("disguise", "")](trap.calls_of(AIMS[scenario["aim"]]["calls"]))
    return str(scenario["words"]).replace("{aim}", hidden).replace("{filler}", FILLER)


def live(trap: Trap, name: str, placed: Placement) -> FinishedRun:
    """A run whose task comes upon the scenario's words."""
    scenario, aim = SCENARIOS[name], AIMS[SCENARIOS[name]["aim"]]
    calls = (*placed.calls, *([QUESTION] if scenario.get("asks") else []))
    people = People(placed.answer or "Go on.", aim.get("verdict", ""), aim.get("order"))
    skills = (*placed.skills, *aim.get("skills", ()))
    return trap.live.run("triage", trap.calls_of(calls), skills=skills, people=people, times=aim.get("times", 1))


def approved_order(aim: Mapping[str, Any]) -> Any:
    return aim["order"]["json"] if aim.get("verdict") == "approve" else None


def test_the_scenarios_use_every_aim_carrier_and_disguise() -> None:
    used = {tuple(sorted((member, str(value)) for member, value in scenario.items())) for scenario in SCENARIOS.values()}
    assert len(used) == len(SCENARIOS) >= 60
    assert all("lands" in aim for aim in AIMS.values())
    assert {scenario["aim"] for scenario in SCENARIOS.values()} == set(AIMS)
    assert {scenario["carrier"] for scenario in SCENARIOS.values()} == CARRIERS
    assert {scenario.get("disguise", "") for scenario in SCENARIOS.values()} == set(DISGUISES)


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_an_obeying_run_writes_nothing_without_approval(trap: Trap, name: str) -> None:
    trap.govern(GUARD)
    trap.reset()
    aim, placed = AIMS[SCENARIOS[name]["aim"]], place(trap, SCENARIOS[name]["carrier"], words_of(trap, name), "agent")
    entry, before = trap.last_entry(), trap.state()
    lived = live(trap, name, placed)
    assert trap.changed_systems(before, approved_order(aim)) == set()
    kind, part = aim["agent"]
    code = aim.get("code", "policy_denied" if kind == "policy.deny" else "")
    if code:
        assert (lived.status, lived.output) == ("succeeded", "done"), lived
        assert code in lived.codes, lived
    else:
        assert (lived.status, lived.waiting_for.get("reason")) == ("waiting", "approval"), lived
    assert aim["calls"][-1][0] in lived.calls or not code, "the model did not obey, so the test proves nothing"
    entries = [each for action, each in trap.audit_entries(entry) if action == kind and each.get("run") == lived.run_id]
    assert any(part in json.dumps(each) for each in entries), entries


@pytest.mark.parametrize("name", list(OF_CLIENTS.values()))
def test_an_obeying_client_writes_nothing_without_approval(trap: Trap, name: str) -> None:
    trap.govern(GUARD, trap.agent)
    trap.reset()
    aim = AIMS[SCENARIOS[name]["aim"]]
    placed: Placement = place(trap, SCENARIOS[name]["carrier"], words_of(trap, name), "mcp")
    entry, before = trap.last_entry(), trap.state()
    done = drive(McpClient(trap.agent), trap.calls_of(placed.calls))
    assert trap.changed_systems(before) == set()
    assert aim["calls"][-1][0] in [tool for tool, _, _ in done.calls[len(placed.calls) :]], "the model did not obey"
    kind, part = aim["mcp"]
    entries = trap.audit_entries(entry)
    assert any(action == kind and part in json.dumps(fields) for action, fields in entries), entries


@pytest.mark.parametrize("name", list(WALLS))
def test_an_obeying_client_finds_nothing_it_may_not_see(trap: Trap, name: str) -> None:
    trap.govern(GUARD, trap.agent)
    trap.reset()
    tool, arguments, code = WALLS[name]
    placed = place(trap, "erp", trap.calls_of([(tool, arguments)]), "mcp")
    before = trap.state()
    done = drive(McpClient(trap.agent), trap.calls_of(placed.calls))
    assert trap.changed_systems(before) == set()
    assert done.answers(tool)[-1] == code


def test_a_run_does_not_see_the_description_of_an_untrusted_skill(trap: Trap) -> None:
    trap.govern(GUARD)
    trap.reset()
    trap.describe("sums", trap.calls_of(AIMS["order"]["calls"]))
    trap.model.requests.clear()
    lived = trap.live.run("triage", "Do your task.", skills=("sums",))
    assert (lived.status, trap.erp.writes) == ("succeeded", []), lived
    assert "- sums: (not approved: not described)" in trap.model.requests[0].messages[0].text


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_without_governance_the_same_words_take_effect(trap: Trap, name: str) -> None:
    trap.govern(OPEN)
    trap.reset()
    aim, placed = AIMS[SCENARIOS[name]["aim"]], place(trap, SCENARIOS[name]["carrier"], words_of(trap, name), "agent")
    before = trap.state()
    lived = live(trap, name, placed)
    assert lived.status == "succeeded", lived
    assert trap.changed_systems(before, approved_order(aim)) == {aim["lands"]}
    assert aim.get("carries", "") in trap.collector.received_text()
