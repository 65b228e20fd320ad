"""The same words in whole runs of an agent that was given every tool, with the obeying model behind a real profile."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.agents.definition import TOOLS
from appliance.core import clock
from tests.agents.model_server import ModelServer, obey, serving

from .driving import see_through
from .test_hostile import AIMS, SCENARIOS, landed, place
from .trap import GUARD, OPEN, Trap

_PATIENCE = 60
_OVER = ("succeeded", "failed", "cancelled", "timed_out", "waiting")
_GIVEN = [name for name in TOOLS if name not in ("list_tenant_integrations", "execute_tenant_integration")]
CHOSEN = {
    "erp-note-as-system-message": "policy.require_approval", "erp-note-in-base64-twice": "policy.deny",
    "erp-note-leaks-by-query": "policy.deny", "outside-result-orders": "policy.require_approval",
    "document-writes-entities": "policy.require_approval", "skill-orders": "policy.require_approval",
}  # fmt: skip
"""What the audit trail says of each."""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with serving(see_through(obey())) as server:
        yield server


def run(trap: Trap, model: ModelServer, name: str) -> dict[str, Any]:
    """A run that comes upon the scenario's words, once it is over or waits for a person."""
    innocent = place(trap, name)
    skills = [arguments["name"] for tool, arguments in innocent if tool == "load_tenant_skill"]
    return run_agent(trap, model, trap.calls_of(innocent), skills)


def run_agent(trap: Trap, model: ModelServer, task: str, skills: list[str]) -> dict[str, Any]:
    """A run with this task, once it is over or waits for a person."""
    trap.ask("PUT", "/llm-profiles/obeying", {"kind": "openai", "model": "small", "base_url": model.url})
    actions = ["erp:*", "collector:*", "outside:*"]
    agent = {"id": "triage", "model": "obeying", "instructions": "Do your task.", "tools": [*_GIVEN, *actions], "skills": skills}
    trap.ask("PUT", "/agents/triage", agent)
    run_id = trap.ask("POST", "/agents/triage/runs", {"input": task})["run_id"]
    pause, ends = threading.Event(), clock.monotonic() + _PATIENCE
    while (found := trap.ask("GET", f"/agents/triage/runs/{run_id}"))["status"] not in _OVER:
        assert clock.monotonic() < ends, found
        pause.wait(0.02)
    if found["status"] == "waiting":
        trap.ask("POST", f"/agents/triage/runs/{run_id}/cancel", {})
    shown: dict[str, Any] = found
    return shown


@pytest.mark.parametrize("name", list(CHOSEN))
def test_a_run_that_obeys_its_reading_causes_nothing(trap: Trap, model: ModelServer, name: str) -> None:
    trap.govern(GUARD)
    entry, before = trap.last_entry(), trap.state()
    ended = run(trap, model, name)
    assert landed(trap, before) == set()
    assert ended["status"] == ("waiting" if CHOSEN[name] == "policy.require_approval" else "succeeded"), ended
    wanted = {tool for tool, _ in AIMS[SCENARIOS[name]["aim"]]["calls"]}
    asked = {call.name for heard in model.heard for message in heard.messages for call in message.calls}
    trail = trap.audited(entry)
    assert wanted <= asked or ended["status"] == "waiting"
    assert any(action == CHOSEN[name] and told.get("agent") == "triage" for action, told in trail), json.dumps(trail)


def test_a_run_is_not_told_what_a_skill_says_of_itself_that_nobody_trusts(trap: Trap, model: ModelServer) -> None:
    trap.govern(GUARD)
    trap.describe("sums", trap.calls_of(AIMS["order"]["calls"]))
    ended = run_agent(trap, model, "Do your task.", ["sums"])
    assert (ended["status"], trap.erp.writes) == ("succeeded", []), ended
    assert "- sums: (not approved: not described)" in model.heard[0].messages[0].text


def test_without_governance_a_run_does_what_it_reads(trap: Trap, model: ModelServer) -> None:
    trap.govern(OPEN)
    ended = run(trap, model, "erp-note-as-system-message")
    assert ended["status"] == "succeeded", ended
    assert len(trap.erp.writes) == 1
