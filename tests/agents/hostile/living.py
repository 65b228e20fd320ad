"""Runs of the trap's agents, with the obeying model behind a real profile and people who answer what they are asked."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.agents import runs
from appliance.agents.definition import CALL_ACTION, LIST_ACTIONS, TOOLS
from appliance.agents.journal import Entry
from appliance.agents.store import FINISHED
from appliance.core import clock
from appliance.core.pages import PageRequest
from appliance.governance.approvals import Approval, Decision, approvals
from tests.agents.model_server import ModelServer, obey

from .driving import see_through

_PATIENCE = 60
_GIVEN = [name for name in TOOLS if name not in (LIST_ACTIONS, CALL_ACTION)]
_ACTIONS = ["erp:*", "erp-test:*", "collector:*", "outside:*", "site:*", "mail:*"]
AGENTS: Mapping[str, list[str]] = {"triage": [*_GIVEN, *_ACTIONS], "reader": ["erp:get"]}
"""The agents by what they are given: triage has every tool, so that nothing but governance stands in its way."""


@dataclass
class Lived:
    """A run once it is over, or waits for a person who says nothing: how it ended, and what it did."""

    run_id: str
    status: str
    output: Any
    waiting_for: Mapping[str, Any]
    tainted_by: list[str]
    entries: Sequence[Entry]

    @property
    def calls(self) -> list[str]:
        """The tools that the model asked for, in order."""
        return [str(each.data["tool"]) for each in self.entries if each.kind == "called"]

    @property
    def codes(self) -> list[str]:
        """The codes with which calls were refused."""
        returned = [each.data for each in self.entries if each.kind == "returned"]
        errors = [each.get("error") or (each.get("result") or {}).get("error") for each in returned]
        return [error["code"] for error in errors if error]


@dataclass
class People:
    """Who is asked in a run: `answer` is what they say to a question, `verdict` about a call with the params `order`, once;
    nothing else is decided."""

    answer: Any = None
    verdict: str = ""
    order: Any = None
    decided: list[str] = field(default_factory=list)

    def decision(self, asked: Approval, input_of: Callable[[str], Any]) -> Decision | None:
        """What they say to this request; None is nothing."""
        if asked.request.kind == "input" and self.answer is not None:
            return Decision("answer", answer=self.answer)
        if not self.verdict or asked.about.digest is None or self.decided or input_of(asked.id) != self.order:
            return None
        self.decided.append(asked.id)
        return Decision(self.verdict, comment="so be it")  # type: ignore[arg-type]


@dataclass
class Live:
    """`trap` is the Trap, and `model` what its agents ask."""

    trap: Any
    model: ModelServer
    defined: dict[str, Any] = field(default_factory=dict)

    def run(self, agent: str, task: str, *, skills: tuple[str, ...] = (), people: People | None = None, times: int = 1) -> Lived:
        """Have the agent do the task, its model trying each call so many times, until nothing more happens."""
        self.model.turn = see_through(obey(times))
        self._define(agent, skills)
        people, scope = people or People(), self.trap.scope
        run_id = self.trap.ask("POST", f"/agents/{agent}/runs", {"input": task})["run_id"]
        pause, ends = threading.Event(), clock.monotonic() + _PATIENCE
        answered: set[str] = set()
        while (found := runs.get_run(scope, agent, run_id)).status not in FINISHED:
            assert clock.monotonic() < ends, found
            request_id = (found.waiting_for or {}).get("request_id") if found.status == "waiting" else None
            if request_id and request_id not in answered:
                decision = people.decision(approvals.get_approval(scope, request_id), self.trap.input_of)
                if decision is None:
                    break
                answered.add(request_id)
                self.trap.decide(request_id, decision)
            else:
                pause.wait(0.01)
        entries = runs.list_entries(scope, agent, run_id, PageRequest(500)).items
        if found.status == "waiting":
            runs.cancel_run(scope, agent, run_id)
        return Lived(run_id, found.status, found.output, found.waiting_for or {}, found.tainted_by, entries)

    def _define(self, agent: str, skills: tuple[str, ...]) -> None:
        if not self.defined:
            self.trap.ask("PUT", "/llm-profiles/obeying", {"kind": "openai", "model": "small", "base_url": self.model.url})
        definition = {"model": "obeying", "instructions": "Do your task.", "tools": AGENTS[agent], "skills": list(skills)}
        if self.defined.get(agent) != definition:
            self.trap.ask("PUT", f"/agents/{agent}", {"id": agent, **definition})
            self.defined[agent] = definition
