"""Rehearses an agent: real instructions, model, budgets and schemas, but tools that are mocked by a test.

Nothing is stored and no tool takes effect.  Policies are evaluated for each call but do not block its mocked answer; the
model's cost is booked as usual.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import ApplianceError, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.llm import NANO

from .conversation import converse
from .definition import LIST_ACTIONS, LOAD_SKILL, Definition
from .journal import Entry, Journal
from .run_segment import RunDependencies, RunSegment
from .store import Claim
from .tool_calls import ToolCalls, ToolInvocation, serialize_error
from .tool_mocks import MockedTools, NoMatchingMock
from .tools.tool import PendingResult

# These run for real, because they only read what the test itself has set up.
_REAL = (LIST_ACTIONS, LOAD_SKILL)


@dataclass(frozen=True)
class RehearsalResult:
    """The result of a rehearsal: `output` if it succeeded, otherwise `error` (code and message), and its usage."""

    status: str
    output: Any
    error: Mapping[str, Any] | None
    turns: int
    usage: Mapping[str, Any]


class _Rehearsal(RunSegment):
    """A run segment whose journal is held in memory only."""

    def check(self) -> None:
        """Check only the budget of seconds."""
        self._check_budget("seconds", self.claim.active_now() / 1000, self.definition.budget.seconds)

    def commit(self, *entries: Entry, also: Callable[[], Any] | None = None, changes: Mapping[str, Any] | None = None) -> None:
        """Write the cost of a turn, but keep the entries in memory."""
        if also is not None:
            db.write(also)
        for number, entry in enumerate(entries, self.journal.last + 1):
            self.journal.add(replace(entry, number=number))

    def note_refusal(self, tool: str, error: PolicyDenied) -> None:
        """Do nothing: calls of a test do not appear in the audit trail."""

    def note_failure(self, turn: int, error: ApplianceError) -> None:
        """Settle the cost without a retry: a test does not wait for a provider."""
        self.commit(also=self._settle)


@dataclass(frozen=True)
class _MockedCalls(ToolCalls):
    """Validates tool calls as usual and answers them from the test's mocks."""

    mocks: MockedTools

    def _call(self, invocation: ToolInvocation, approval_id: str | None) -> Mapping[str, Any]:
        tool, arguments = invocation.tool, invocation.arguments
        try:
            if tool.name not in _REAL:
                return self._handle_result(invocation, self.mocks.answer(tool, arguments, partial(self._decide, invocation)))
            self.mocks.note(tool, arguments, partial(self._decide, invocation))
            result = tool.call(self.segment.caller, arguments)
        except ApplianceError as error:
            return self._record_result(invocation, {"ok": False, "error": serialize_error(error)})
        if isinstance(result, PendingResult):
            raise NoMatchingMock(tool.name)
        return self._handle_result(invocation, result)

    def _decide(self, invocation: ToolInvocation) -> tuple[str, tuple[str, ...]]:
        """The policies' decision about the call, or the error if its action cannot be resolved."""
        try:
            _, decision = self._evaluate(invocation)
        except ApplianceError as error:
            return "", (error.message,)
        return decision.verdict, decision.reasons


def rehearse(
    scope: TenantScope, definition: Definition, task_input: Any, mocks: MockedTools, dependencies: RunDependencies
) -> RehearsalResult:
    """Run the agent with this input and mocked tools, and return the result."""
    run_id = ids.new("run")
    acting = TenantScope(scope.tenant_id, f"run:{run_id}", scope.scopes, started_by=scope.actor)
    claim = Claim(
        scope=acting, run_id=run_id, agent_id=definition.id, version=0, fence=0, claims=0, input=task_input,
        started_at=clock.now_ms(), active_ms=0, claimed_at=clock.monotonic(),
    )
    segment = _Rehearsal(claim, Journal(), definition, lambda: 0, lambda: False)
    output, error = None, None

    try:
        output = converse(segment, dependencies, _MockedCalls(segment, dependencies, mocks).execute)
    except ApplianceError as failure:
        error = {"code": failure.code, "message": failure.message}
    except NoMatchingMock as unmocked:
        error = {"code": "unanswered", "message": Sentence("the test has no answer for %(missing)s", missing=unmocked)}
    used = claim.used
    usage = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "cost": used.cost_nano / NANO}
    return RehearsalResult("failed" if error else "succeeded", output, error, used.turns, usage)
