"""The tools that ask people and read their answers; there is deliberately no tool that decides."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.core import clock
from appliance.core.errors import TimedOut, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.governance.approvals import ActionApprovals, Approval, HumanInput, RequestOptions, approvals, request_human_input
from appliance.governance.executor import DEFAULT_SECONDS
from appliance.governance.policies import ToolAction

from .integrations import PolicyEvaluator
from .shapes import TEXT, inputs, outputs
from .tool import Caller, Hints, PendingResult, Tool

ASK, LOOK = "request_human_input", "get_human_input"
_LONGEST_WAIT = 60
_STATUSES = ["pending", "approved", "used", "rejected", "answered", "expired", "cancelled"]

FindAction = Callable[[Caller, str, Mapping[str, Any]], ToolAction]
"""Builds the action that policies evaluate for a tool call; the toolbox's `action_of`."""


class Submit(Protocol):
    """Runs work in the thread pool for external systems; the executor's `submit`."""

    def __call__(self, scope: TenantScope, work: Callable[[], dict[str, Any]]) -> "Future[dict[str, Any]]":
        """Submit `work`; raises ConcurrencyLimited."""


@dataclass(frozen=True)
class HumanTools:
    """Tools for approvals; `review_url` returns the console address where people of the tenant decide."""

    actions: ActionApprovals
    governor: PolicyEvaluator
    find_action: FindAction
    review_url: Callable[[TenantScope, str], str]
    submit: Submit

    def tools(self) -> list[Tool]:
        """`request_human_input` and `get_human_input`."""
        action = inputs(("tool", "arguments"), tool=TEXT, arguments={"type": "object"})
        ask = inputs(
            ("kind", "title"), kind={"enum": ["approval", "input", "choice"]},
            title={"type": "string", "minLength": 1, "maxLength": 200}, reason={"type": "string", "maxLength": 4000},
            action={**action, "description": "For kind approval: exactly the call to be made once it is approved."},
            schema={"type": "object", "description": "For kind input: JSON Schema of the answer; without one it is text."},
            choices={"type": "array", "items": TEXT, "description": "For kind choice: the options."},
            ttl_seconds={"type": "integer", "minimum": 1, "maximum": 90 * 86_400},
            idempotency_key={
                "type": "string", "minLength": 1, "maxLength": 255, "description": "A repeated call with the same key asks once.",
            },
        )  # fmt: skip
        output = outputs(
            ("request_id", "status", "summary", "review_url"), request_id=TEXT, status={"enum": _STATUSES}, action_digest=TEXT,
            summary=TEXT, expires_at=TEXT, review_url=TEXT, answer={}, comment=TEXT, decided_by=TEXT,
        )  # fmt: skip
        look = inputs(
            ("request_id",), request_id=TEXT,
            wait_seconds={"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT, "default": 0},
        )  # fmt: skip
        return [
            Tool(
                name=ASK, title="Ask a person",
                description=(
                    "Asks a person to approve one exact call, to answer a question, or to choose. Show review_url to "
                    "the person: they "
                    "sign in there and decide; a client cannot decide for them. Get the result with get_human_input."
                ),
                input_schema=ask, output_schema=output, effect="read", scopes=frozenset({"approvals.request"}), call=self.ask,
                hints=Hints(read_only=False), long=("comment",),
            ),
            Tool(
                name=LOOK, title="Get a person's decision",
                description="Returns a request and its decision; waits up to wait_seconds for one.", input_schema=look,
                output_schema=output, effect="read", scopes=frozenset({"approvals.read"}), call=self.look, long=("comment",),
            ),
        ]  # fmt: skip

    def ask(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any] | PendingResult:
        """Store the request; a repeated idempotency key returns the same one.

        An action is resolved in the thread pool for external systems, because its definition may have to be fetched from one.
        """
        kind, action = arguments["kind"], arguments.get("action")
        if (kind == "approval") != (action is not None):
            raise ValidationFailed("`action` is required for kind approval and not allowed for other kinds", pointer="/action")
        if action is None:
            return self._to_view(caller.scope, request_human_input(caller.scope, caller.subject, HumanInput(**arguments)))
        running = self.submit(caller.scope, lambda: self._to_view(caller.scope, self._request_approval(caller, action, arguments)))

        def look(last: bool) -> dict[str, Any] | None:
            if running.done():
                return running.result(timeout=0)
            if last:
                raise TimedOut("the external system took too long to list its actions; try again in a moment")
            return None

        return PendingResult(look, DEFAULT_SECONDS + 10, running)

    def _request_approval(self, caller: Caller, call: Mapping[str, Any], arguments: Mapping[str, Any]) -> Approval:
        action = self.find_action(caller, call["tool"], call["arguments"])
        decision = self.governor.evaluate(caller.scope, caller.subject, action)
        seconds, key = arguments.get("ttl_seconds"), arguments.get("idempotency_key")
        request = RequestOptions(arguments["title"], arguments.get("reason", ""), seconds, key)
        return self.actions.request_action(caller.scope, caller.subject, action, decision, request)

    def look(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any] | PendingResult:
        """Like GET /approvals/{id}, at once or when it is decided."""
        request_id, scope = arguments["request_id"], caller.scope

        def look(last: bool) -> dict[str, Any] | None:
            approval = approvals.get_approval(scope, request_id)
            return self._to_view(scope, approval) if last or approval.status != "pending" else None

        seconds = float(arguments.get("wait_seconds", 0))
        return look(seconds == 0) or PendingResult(look, seconds)

    def _to_view(self, scope: TenantScope, approval: Approval) -> dict[str, Any]:
        about = approval.about
        view = {
            "request_id": approval.id, "status": approval.status, "summary": about.summary or approval.request.title,
            "review_url": self.review_url(scope, approval.id), "action_digest": about.digest,
            "expires_at": clock.optional_rfc3339(approval.request.expires_at), "comment": approval.comment or None,
            "decided_by": approval.decided_login,
        }  # fmt: skip
        answer = {"answer": approval.answer} if approval.status == "answered" else {}
        return {name: value for name, value in view.items() if value is not None} | answer
