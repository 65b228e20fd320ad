"""Calls that wait for a person, a time, an event or a child execution: how each starts and ends.

Durations (`wait.for`, the timeout of an event and of an agent's run) keep their length when the wall clock is set, see
`clock_jumps`.  `wait.until` and the deadlines shown to people are points in time and follow the wall clock.  After a restart
of the machine all of them go by the wall clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import PolicyDenied, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.governance import Permit
from appliance.governance.approvals import RequestOptions, approvals
from appliance.processes.definitions.nodes import MAX_EVENT_NAME, Grants
from appliance.sandbox import HostCall

from . import suspension
from .store import Claim
from .suspension import PendingCall, RunKey

CHILD = "processes.execute"
MODEL = "llm.answer"  # an `llm` step without its profile: it waits for the profile, or for a person's answer
OWN_METHODS = ("wait.for", "wait.until", "events.wait")  # Their records belong to the execution alone.
METHODS = ("human.request", *OWN_METHODS, CHILD)
# The wait reason of kinds that have no reason of their own.
_REASON_OF = {"model": "input", "agent": "child"}
_DECIDED_BY_PEOPLE = ("approval", "input", "model")  # their deadline is shown to people, so it is a point in time
# By precedence: an execution that waits for several things has the first of these reasons.
REASONS = ("approval", "input", "event", "child", "timer", "retry")


@dataclass(frozen=True)
class Child:
    """A child execution to start: `insert`, inside a write, records and queues it and returns {execution_id, …}."""

    insert: Callable[[], dict[str, Any]]


class Children(Protocol):
    """Starts child executions."""

    def prepare(self, claim: Claim, process_id: str, child_input: Any, *, awaited: bool = False) -> Child:
        """`awaited`: the parent waits for its end.  All checks that can fail happen here, outside of a write."""


@dataclass(frozen=True)
class PreparedCall:
    """A call ready to be recorded: `record`, inside a write, returns the pending call, or None and the call's value."""

    record: Callable[[], tuple[PendingCall | None, Any]]


@dataclass(frozen=True)
class Waits:
    """The pending calls of one step run; `max_wait_ms` is the maximum duration of each."""

    claim: Claim
    run_key: RunKey
    step: str
    grants: Grants
    children: Children
    max_wait_ms: int

    def prepare(self, call: HostCall) -> PreparedCall:
        """Check a call and prepare it; an ApplianceError is the answer to the call."""
        if call.method == "human.request":
            return self._ask_person(call)
        if call.method == CHILD:
            return self._start_child(call)
        if call.method == MODEL:
            return self._await_profile(call)
        due, name = self._until(call) if call.method.startswith("wait.") else self._event(call)
        kind = "event" if call.method == "events.wait" else "timer"
        pending = self._pending(call, kind, ids.new("wai"), name, due)
        return PreparedCall(lambda: (self._add(pending), None))

    def _ask_person(self, call: HostCall) -> PreparedCall:
        if not self.grants.human:
            raise PolicyDenied("this step is not granted to ask people; add grants: human: true")
        path, iteration, attempt = self.run_key
        origin = approvals.Origin(
            self.claim.execution_id, self.claim.process_id, self.step, path=path, iteration=iteration, call=call.id, attempt=attempt
        )
        (arguments,) = _arguments(call, 1, "api.human.request({kind, title, …})")
        now = clock.now_ms()
        parsed = approvals.parse_request(arguments, origin, now)
        request = replace(parsed, expires_at=parsed.expires_at or now + self.max_wait_ms)

        def record() -> tuple[PendingCall, None]:
            approval = approvals.request_approval(self.claim.scope, request)
            kind = "approval" if request.kind == "approval" else "input"
            return self._add(self._pending(call, kind, approval.id, request.title, request.expires_at)), None

        return PreparedCall(record)

    def _await_profile(self, call: HostCall) -> PreparedCall:
        """Wait for a profile; a person may answer instead, unless the question is too large for an approval request."""
        (question,) = call.args
        slug, due = question["profile"], clock.now_ms() + self.max_wait_ms
        path, iteration, attempt = self.run_key
        origin = approvals.Origin(
            self.claim.execution_id, self.claim.process_id, self.step, path=path, iteration=iteration, call=call.id, attempt=attempt
        )
        try:
            request = replace(approvals.parse_request(_to_approval_request(question), origin, clock.now_ms()), expires_at=due)
        except ValidationFailed:
            request = None

        def record() -> tuple[PendingCall, None]:
            token = ids.new("wai") if request is None else approvals.request_approval(self.claim.scope, request).id
            return self._add(self._pending(call, "model", token, slug, due)), None

        return PreparedCall(record)

    def _until(self, call: HostCall) -> tuple[int, str]:
        (text,) = _arguments(call, 1, "api.wait.for(duration) or api.wait.until(time)")
        if not isinstance(text, str):
            raise ValidationFailed(
                Sentence('api.%(method)s needs a text such as "10m" or "2030-01-31T08:00:00Z"', method=call.method)
            )
        now = clock.now_ms()
        due = now + clock.parse_duration(text) if call.method == "wait.for" else clock.parse_rfc3339(text)
        if due - now > self.max_wait_ms:
            raise ValidationFailed(
                Sentence("an execution waits at most %(longest_ms)s days", longest_ms=self.max_wait_ms // 86400000)
            )
        return due, text

    def _event(self, call: HostCall) -> tuple[int | None, str]:
        name, options = [*call.args, None][:2] if call.args else (None, None)
        if len(call.args) > 2 or not isinstance(name, str) or not 1 <= len(name) <= MAX_EVENT_NAME:
            raise ValidationFailed(Sentence(
                "call api.events.wait(name, {timeout?}) with a name of 1 to %(max_event_name)s characters",
                max_event_name=MAX_EVENT_NAME,
            ))
        if options is not None and (not isinstance(options, Mapping) or set(options) - {"timeout"}):
            raise ValidationFailed("the options of api.events.wait are {timeout}, a duration")
        timeout = (options or {}).get("timeout")
        if timeout is None:
            return None, name
        if not isinstance(timeout, str):
            raise ValidationFailed('timeout must be a duration such as "48h"', pointer="/timeout")
        return clock.now_ms() + clock.parse_duration(timeout, pointer="/timeout"), name

    def _start_child(self, call: HostCall) -> PreparedCall:
        process_id, child_input, options = [*call.args, None, None, None][:3]
        usage = "call api.processes.execute(process, input, {wait: true | false})"
        if len(call.args) > 3 or not isinstance(process_id, str):
            raise ValidationFailed(usage)
        if options is not None and (not isinstance(options, Mapping) or set(options) - {"wait"}):
            raise ValidationFailed(usage)
        waits = (options or {}).get("wait", False)
        if not isinstance(waits, bool):
            raise ValidationFailed(usage, pointer="/wait")
        if process_id not in self.grants.processes:
            name = process_id[:63]
            raise PolicyDenied(
                Sentence("this step is not granted to execute %(name)s; add grants: processes: [%(name)s]", name=name)
            )
        child = self.children.prepare(self.claim, process_id, {} if child_input is None else child_input, awaited=waits)

        def record() -> tuple[PendingCall | None, Any]:
            started = child.insert()
            if not waits:
                return None, started
            return self._add(self._pending(call, "child", started["execution_id"], process_id, None)), None

        return PreparedCall(record)

    def _pending(self, call: HostCall, kind: str, token: str, name: str, due: int | None) -> PendingCall:
        latest = clock.now_ms() + self.max_wait_ms
        is_point = kind in _DECIDED_BY_PEOPLE or call.method == "wait.until"
        return PendingCall(
            *self.run_key, call.id, kind, token, name, latest if due is None else min(due, latest),
            measured_by=None if is_point else clock.boot_id(),
        )  # fmt: skip

    def _add(self, pending: PendingCall) -> PendingCall:
        suspension.add_call(self.claim, pending)
        return pending

    def await_approval(self, number: int, permit: Permit) -> PreparedCall:
        """Wait until people have decided about an action; PolicyDenied if the policy has no approvers."""
        path, iteration, attempt = self.run_key
        origin = approvals.Origin(
            self.claim.execution_id, self.claim.process_id, self.step, path=path, iteration=iteration, call=number, attempt=attempt
        )

        def record() -> tuple[PendingCall, None]:
            suspension.delete_answer(self.claim, self.run_key, number)  # an approval that is no longer valid
            approval = permit.request_approval(RequestOptions(origin=origin))
            call, request = HostCall(number, "", []), approval.request
            return self._add(self._pending(call, "approval", approval.id, request.title, request.expires_at)), None

        return PreparedCall(record)

    def await_run(self, number: int, run_id: str, agent_id: str, due: int | None) -> PendingCall:
        """Inside a write: wait for the end of an agent's run."""
        return self._add(self._pending(HostCall(number, "", []), "agent", run_id, agent_id, due))

    # -- what ends them

    def answer_due(self, pending: PendingCall) -> tuple[bool, Any]:
        """Inside a write: the answer (ok, value) of a call that is due without having been answered."""
        scope, token = self.claim.scope, pending.token
        if pending.kind == "timer":
            return True, None
        if pending.kind in ("approval", "input"):
            return True, approvals.answer_view(approvals.expire_approval(scope, token))
        if pending.kind == "model":
            approvals.withdraw_approval(scope, token, "the step is no longer waiting for an LLM profile")
        subject = _TIMED_OUT_TEXTS.get(pending.kind, "{} did not finish").format(pending.name)
        return False, {
            "code": "wait_timed_out",
            "message": Sentence("%(what)s in time", what=subject),
            "retryable": False,
            "failure_class": "timeout",
            "details": [],
        }  # fmt: skip


def error_of_refusal(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The error of an action that people did not approve, by their answer."""
    decided_by, request = answer.get("decided_by"), answer["request_id"]
    if answer["status"] == "expired":
        message = Sentence(
            "the action was not approved in time (%(request)s); request it again if it is still needed", request=request
        )
    else:
        comment = f": {answer['comment']}" if answer.get("comment") else ""
        message = Sentence(
            "%(who)s did not approve the action (%(request)s)%(said)s", who=decided_by or "somebody", request=request, said=comment
        )
    code = "approval_expired" if answer["status"] == "expired" else "approval_rejected"
    return {"code": code, "message": message, "retryable": False, "failure_class": "policy", "details": []}


_TIMED_OUT_TEXTS = {
    "event": "the event {!r} did not arrive", "agent": "the run of the agent {} did not finish",
    "model": "the LLM profile {} was not created",
}  # fmt: skip
_MAX_QUESTION = 16_000


def _to_approval_request(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The request to a person who answers in place of a missing LLM profile."""
    slug, schema = arguments["profile"], arguments.get("output")
    messages = (str(each.get("content")) for each in arguments.get("messages") or ())
    texts = [arguments.get("system"), arguments.get("prompt"), *messages]
    if arguments.get("input") is not None:
        texts.append(f"Input: {db.dump_json(arguments['input'])}")
    text = "\n\n".join(text for text in texts if text)
    return {
        "kind": "input", "title": f"Answer in place of the LLM profile {slug}",
        "reason": f"There is no LLM profile {slug}. Create it (POST /api/v1/llm-profiles) and the model answers; or answer here.",
        "details": {"question": text[:_MAX_QUESTION], "documents": len(arguments.get("documents") or ()),
                    "images": len(arguments.get("images") or ())},
    } | ({"schema": schema} if schema is not None else {})  # fmt: skip


def reason_of(pending: PendingCall) -> str:
    """The wait reason of an execution with this call."""
    return _REASON_OF.get(pending.kind, pending.kind)


def _arguments(call: HostCall, count: int, usage: str) -> list[Any]:
    if len(call.args) != count:
        raise ValidationFailed(Sentence("call %(shown)s", shown=usage))
    return call.args


def to_view(pending: PendingCall, step: str) -> dict[str, Any]:
    """A pending call as shown to callers in `waiting_for`."""
    view: dict[str, Any] = {"kind": "human" if pending.kind in ("approval", "input") else pending.kind, "step": step}
    view |= {"path": pending.path, "call": pending.call, "until": clock.rfc3339(pending.due_at)}
    if pending.iteration:
        view["iteration"] = pending.iteration
    if pending.kind in ("approval", "input"):
        return view | {"approval_id": pending.token, "title": pending.name}
    if pending.kind == "model":
        next_action = f"create the LLM profile {pending.name} with POST /api/v1/llm-profiles, or answer in its place"
        approval = {"approval_id": pending.token} if pending.token.startswith("apr_") else {}
        return view | approval | {"kind": "llm_profile", "profile": pending.name, "next": next_action}
    if pending.kind == "agent":
        return view | {"run_id": pending.token, "agent_id": pending.name, **(pending.detail or {})}
    if pending.kind == "event":
        return view | {"token": pending.token, "name": pending.name}
    return view | {"execution_id": pending.token, "process_id": pending.name} if pending.kind == "child" else view
