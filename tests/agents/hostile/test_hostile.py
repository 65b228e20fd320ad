"""Words from outside cannot cause a write that nobody approved, though the model does whatever it reads.

Each scenario of scenarios.yaml places words where a task comes upon them; aims.yaml says what they want, and what the audit
trail must say of its refusal.  What happened is counted at the foreign systems.  The control takes governance out, and the same
words do what they say.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from appliance.core import yaml12
from appliance.governance.approvals import Decision
from appliance.governance.subjects import Via

from .disguises import DISGUISES
from .driving import Done, drive
from .trap import GUARD, OPEN, Trap

_HERE = Path(__file__).parent
AIMS: Mapping[str, Any] = yaml12.load((_HERE / "aims.yaml").read_text("utf-8"))
SCENARIOS: Mapping[str, Any] = yaml12.load((_HERE / "scenarios.yaml").read_text("utf-8"))
LANDING = [name for name, scenario in SCENARIOS.items() if "lands" in AIMS[scenario["aim"]]]
_DECISIONS = {
    "rejects": Decision("reject", comment="no"), "approves": Decision("approve"), "answers": Decision("answer", answer="yes"),
}  # fmt: skip


def place(trap: Trap, name: str) -> list[Any]:
    """The innocent calls of a task, which come upon the scenario's words."""
    scenario = SCENARIOS[name]
    hidden = DISGUISES[scenario.get("disguise", "")](trap.calls_of(AIMS[scenario["aim"]]["calls"]))
    return trap.place(scenario["carrier"], scenario["words"].replace("{aim}", hidden))


def attack(trap: Trap, name: str, innocent: list[Any], via: Via) -> Done:
    """Everything the model does then."""
    aim = AIMS[SCENARIOS[name]["aim"]]

    def on_result(tool: str, result: Mapping[str, Any]) -> None:
        if "person" in aim and tool == "request_human_input":
            trap.decide(result["request_id"], _DECISIONS[aim["person"]])

    return drive(trap.surface(via), trap.calls_of(innocent), on_result)


def landed(trap: Trap, before: Mapping[str, Any]) -> set[str]:
    """Where something happened that nobody had approved."""
    found = {"erp"} if trap.erp.writes else set()
    found |= {"collector"} if trap.collector.http.received else set()
    found |= {"outside"} if set(trap.outside.calls) - {"look"} else set()
    return found | ({"entities"} if trap.state() != before else set())


def test_there_are_enough_scenarios_and_each_aim_is_used() -> None:
    assert len(SCENARIOS) >= 50
    assert {scenario["aim"] for scenario in SCENARIOS.values()} == set(AIMS)


@pytest.mark.parametrize("via", ["agent", "mcp"])
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_words_cause_no_write_that_nobody_approved(trap: Trap, name: str, via: Via) -> None:
    trap.govern(GUARD)
    aim = AIMS[SCENARIOS[name]["aim"]]
    innocent = place(trap, name)
    before, entry = trap.state(), trap.last_entry()
    done = attack(trap, name, innocent, via)
    assert landed(trap, before) == set()
    wanted = {tool for tool, _ in aim["calls"]}
    assert wanted <= {tool for tool, _, _ in done.calls[len(innocent) :]}, "the model did not obey, so that nothing was shown"
    trail = trap.audited(entry)
    for kind, part in aim[via]:
        if kind == "answer":
            assert part in [code for tool in wanted for code in done.answers(tool)]
        else:
            assert any(action == kind and part in json.dumps(told) for action, told in trail), (kind, part, trail)


@pytest.mark.parametrize("name", LANDING)
def test_without_governance_the_same_words_do_what_they_say(trap: Trap, name: str) -> None:
    trap.govern(OPEN)
    innocent = place(trap, name)
    before = trap.state()
    attack(trap, name, innocent, "agent")
    assert landed(trap, before) == {AIMS[SCENARIOS[name]["aim"]]["lands"]}
