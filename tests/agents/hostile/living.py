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
_TOOLS = [name for name in TOOLS if name not in (LIST_ACTIONS, CALL_ACTION)]
_ACTIONS = ["erp:*", "erp-test:*", "collector:*", "outside:*", "site:*", "mail:*"]
AGENTS: Mapping[str, list[str]] = {"triage": [*_TOOLS, *_ACTIONS], "reader": ["erp:get"]}
"""The agents with their tools: triage has every tool, so that only governance restricts it."""


@dataclass
class FinishedRun:
    """A run that has ended, or waits for a person who does not answer: its status and what it did."""

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
    """The people a run asks: `answer` is their answer to a question, `approval_decision` their one decision about the call
    with the params `order`; they decide nothing else."""

    answer: Any = None
    approval_decision: str = ""
    order: Any = None
    decided: list[str] = field(default_factory=list)

    def decide(self, approval: Approval, input_of: Callable[[str], Any]) -> Decision | None:
        """Their decision about this request, or None."""
        if approval.request.kind == "input" and self.answer is not None:
            return Decision("answer", answer=self.answer)
        if not self.approval_decision or approval.about.digest is None or self.decided or input_of(approval.id) != self.order:
            return None
        self.decided.append(approval.id)
        return Decision(self.approval_decision, comment="so be it")  # type: ignore[arg-type]


@dataclass
class Live:
    """`trap` is the Trap, and `model` what its agents ask."""

    trap: Any
    model: ModelServer
    defined: dict[str, Any] = field(default_factory=dict)

    def run(
        self, agent: str, task: str, *, skills: tuple[str, ...] = (), people: People | None = None, times: int = 1
    ) -> FinishedRun:
        """Have the agent do the task, its model trying each call so many times, until nothing more happens."""
        self.model.turn = see_through(obey(times))
        self._define(agent, skills)
        people, scope = people or People(), self.trap.scope
        run_id = self.trap.ask("POST", f"/agents/{agent}/runs", {"input": task})["run_id"]
        pause, ends = threading.Event(), clock.monotonic() + _PATIENCE
        answered: set[str] = set()
        while (run := runs.get_run(scope, agent, run_id)).status not in FINISHED:
            assert clock.monotonic() < ends, run
            request_id = (run.waiting_for or {}).get("request_id") if run.status == "waiting" else None
            if request_id and request_id not in answered:
                decision = people.decide(approvals.get_approval(scope, request_id), self.trap.input_of)
                if decision is None:
                    break
                answered.add(request_id)
                self.trap.decide(request_id, decision)
            else:
                pause.wait(0.01)
        entries = runs.list_entries(scope, agent, run_id, PageRequest(500)).items
        if run.status == "waiting":
            runs.cancel_run(scope, agent, run_id)
        return FinishedRun(run_id, run.status, run.output, run.waiting_for or {}, run.tainted_by, entries)

    def _define(self, agent: str, skills: tuple[str, ...]) -> None:
        if not self.defined:
            self.trap.ask("PUT", "/llm-profiles/obeying", {"kind": "openai", "model": "small", "base_url": self.model.url})
        definition = {"model": "obeying", "instructions": "Do your task.", "tools": AGENTS[agent], "skills": list(skills)}
        if self.defined.get(agent) != definition:
            self.trap.ask("PUT", f"/agents/{agent}", {"id": agent, **definition})
            self.defined[agent] = definition
