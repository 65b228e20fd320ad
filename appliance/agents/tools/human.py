"""The tools that ask people, and look what they said: asking is a tool, deciding is none."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from appliance.core import clock
from appliance.core.errors import TimedOut, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.governance.approvals import ActionApprovals, Approval, HumanInput, Wish, approvals, request_human_input
from appliance.governance.executor import DEFAULT_SECONDS
from appliance.governance.policies import ToolAction

from .integrations import Considers
from .shapes import TEXT, inputs, outputs
from .tool import Caller, Hints, Tool, Waiting

ASK, LOOK = "request_human_input", "get_human_input"
_LONGEST_WAIT = 60
_STATUSES = ["pending", "approved", "used", "rejected", "answered", "expired", "cancelled"]

FindAction = Callable[[Caller, str, Mapping[str, Any]], ToolAction]
"""What policies see of a tool called with arguments; the toolbox's `action_of`."""


class Submit(Protocol):
    """Threads kept for what waits for foreign systems; the executor's `submit`."""

    def __call__(self, scope: TenantScope, work: Callable[[], dict[str, Any]]) -> "Future[dict[str, Any]]":
        """Run it there; ConcurrencyLimited."""


@dataclass(frozen=True)
class HumanTools:
    """Tools over approvals; `review_url` says where people decide in a tenant."""

    actions: ActionApprovals
    governor: Considers
    find_action: FindAction
    review_url: Callable[[TenantScope, str], str]
    submit: Submit

    def tools(self) -> list[Tool]:
        """`request_human_input` and `get_human_input`."""
        action = inputs(("tool", "arguments"), tool=TEXT, arguments={"type": "object"})
        ask = inputs(
            ("kind", "title"), kind={"enum": ["approval", "input", "choice"]},
            title={"type": "string", "minLength": 1, "maxLength": 200}, reason={"type": "string", "maxLength": 4000},
            action={**action, "description": "With kind approval: exactly the call that is to be made once it is approved."},
            schema={"type": "object", "description": "With kind input: JSON Schema of the answer; without one it is a text."},
            choices={"type": "array", "items": TEXT, "description": "With kind choice."},
            ttl_seconds={"type": "integer", "minimum": 1, "maximum": 90 * 86_400},
            idempotency_key={"type": "string", "minLength": 1, "maxLength": 255, "description": "Ask once, however often."},
        )  # fmt: skip
        told = outputs(
            ("request_id", "status", "summary", "review_url"), request_id=TEXT, status={"enum": _STATUSES}, action_digest=TEXT,
            summary=TEXT, expires_at=TEXT, review_url=TEXT, answer={}, comment=TEXT, decided_by=TEXT,
        )  # fmt: skip
        look = inputs(
            ("request_id",), request_id=TEXT,
            wait_seconds={"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT, "default": 0},
        )  # fmt: skip
        return [
            Tool(
                ASK, "Ask a person",
                "Asks a person for an approval of one exact call, for an answer, or for a choice. Show review_url to the person: "
                "they sign in there and decide; nothing that a client says counts as a decision. Follow it with get_human_input.",
                ask, told, "read", frozenset({"approvals.request"}), self.ask, Hints(read_only=False), ("comment",),
            ),
            Tool(
                LOOK, "Look what a person decided", "Shows a request and the decision; waits up to wait_seconds for one.",
                look, told, "read", frozenset({"approvals.read"}), self.look, long=("comment",),
            ),
        ]  # fmt: skip

    def ask(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any] | Waiting:
        """Keep the request; the same key asks once.  For an action, whose foreign system may have to be asked for it first, in a
        thread kept for foreign systems."""
        kind, action = arguments["kind"], arguments.get("action")
        if (kind == "approval") != (action is not None):
            raise ValidationFailed("an approval is of one action, and only an approval has one", pointer="/action")
        if action is None:
            return self._told(caller.scope, request_human_input(caller.scope, caller.subject, HumanInput(**arguments)))
        running = self.submit(caller.scope, lambda: self._told(caller.scope, self._ask_for(caller, action, arguments)))

        def look(last: bool) -> dict[str, Any] | None:
            if running.done():
                return running.result(timeout=0)
            if last:
                raise TimedOut("the foreign system takes too long to say which actions it has; ask again in a moment")
            return None

        return Waiting(look, DEFAULT_SECONDS + 10, running)

    def _ask_for(self, caller: Caller, wanted: Mapping[str, Any], arguments: Mapping[str, Any]) -> Approval:
        action = self.find_action(caller, wanted["tool"], wanted["arguments"])
        decision = self.governor.consider(caller.scope, caller.subject, action)
        wish = Wish(arguments["title"], arguments.get("reason", ""), arguments.get("ttl_seconds"), arguments.get("idempotency_key"))
        return self.actions.request_action(caller.scope, caller.subject, action, decision, wish)

    def look(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any] | Waiting:
        """As GET /approvals/{id}, now or once it is decided."""
        request_id, scope = arguments["request_id"], caller.scope

        def look(last: bool) -> dict[str, Any] | None:
            found = approvals.get_approval(scope, request_id)
            return self._told(scope, found) if last or found.status != "pending" else None

        seconds = float(arguments.get("wait_seconds", 0))
        return look(seconds == 0) or Waiting(look, seconds)

    def _told(self, scope: TenantScope, found: Approval) -> dict[str, Any]:
        about = found.about
        told = {
            "request_id": found.id, "status": found.status, "summary": about.summary or found.request.title,
            "review_url": self.review_url(scope, found.id), "action_digest": about.digest,
            "expires_at": clock.optional_rfc3339(found.request.expires_at), "comment": found.comment or None,
            "decided_by": found.decided_login,
        }  # fmt: skip
        answer = {"answer": found.answer} if found.status == "answered" else {}
        return {name: value for name, value in told.items() if value is not None} | answer
