"""Calls that wait: for a person, a time, an event or a child execution; how each begins, and what ends it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from appliance.core import clock, ids
from appliance.core.errors import PolicyDenied, ValidationFailed
from appliance.governance import approvals
from appliance.sandbox import HostCall

from . import suspension
from .nodes import MAX_EVENT_NAME, Grants
from .store import Claim
from .suspension import PendingCall, RunKey

CHILD = "processes.execute"
METHODS = ("human.request", "wait.for", "wait.until", "events.wait", CHILD)
# How an execution that waits for several things is called: for the first of these it has.
REASONS = ("approval", "input", "event", "child", "timer", "retry")


@dataclass(frozen=True)
class Child:
    """A child execution to be: `insert`, inside a write, records it, sets it going and answers {execution_id, …}."""

    insert: Callable[[], dict[str, Any]]


class Children(Protocol):
    """Starts child executions."""

    def prepare(self, claim: Claim, process_id: str, given: Any) -> Child:
        """Everything that can be refused is refused here, outside of a write."""


@dataclass(frozen=True)
class Begun:
    """A call ready to be recorded: `record`, inside a write, answers what it waits for, or None and the call's value."""

    record: Callable[[], tuple[PendingCall | None, Any]]


@dataclass(frozen=True)
class Waits:
    """The waiting calls of one step run; `longest_ms` bounds every one."""

    claim: Claim
    run_key: RunKey
    step: str
    grants: Grants
    children: Children
    longest_ms: int

    def begin(self, call: HostCall) -> Begun:
        """Check a call; an ApplianceError is its answer."""
        if call.method == "human.request":
            return self._ask_person(call)
        if call.method == CHILD:
            return self._start_child(call)
        due, name = self._until(call) if call.method.startswith("wait.") else self._event(call)
        kind = "event" if call.method == "events.wait" else "timer"
        pending = self._pending(call, kind, ids.new("wai"), name, due)
        return Begun(lambda: (self._noted(pending), None))

    def _ask_person(self, call: HostCall) -> Begun:
        if not self.grants.human:
            raise PolicyDenied("this step has no grant to ask a person; add grants: human: true")
        path, iteration, attempt = self.run_key
        origin = approvals.Origin(
            self.claim.execution_id, self.claim.process_id, self.step, path, iteration, call.id, attempt
        )
        (given,) = _arguments(call, 1, "api.human.request({kind, title, …})")
        now = clock.now_ms()
        asked = approvals.parse_request(given, origin, now)
        request = replace(asked, expires_at=asked.expires_at or now + self.longest_ms)

        def record() -> tuple[PendingCall, None]:
            made = approvals.request_approval(self.claim.scope, request)
            kind = "approval" if request.kind == "approval" else "input"
            return self._noted(self._pending(call, kind, made.id, request.title, request.expires_at)), None

        return Begun(record)

    def _until(self, call: HostCall) -> tuple[int, str]:
        (given,) = _arguments(call, 1, "api.wait.for(duration) or api.wait.until(time)")
        if not isinstance(given, str):
            raise ValidationFailed(f'api.{call.method} takes a text such as "10m" or "2030-01-31T08:00:00Z"')
        now = clock.now_ms()
        due = now + clock.parse_duration(given) if call.method == "wait.for" else clock.parse_rfc3339(given)
        if due - now > self.longest_ms:
            raise ValidationFailed(f"an execution waits at most {self.longest_ms // 86_400_000} days")
        return due, given

    def _event(self, call: HostCall) -> tuple[int | None, str]:
        name, options = [*call.args, None][:2] if call.args else (None, None)
        if len(call.args) > 2 or not isinstance(name, str) or not 1 <= len(name) <= MAX_EVENT_NAME:
            raise ValidationFailed(f"call api.events.wait(name, {{timeout?}}) with a name of 1 to {MAX_EVENT_NAME} characters")
        if options is not None and (not isinstance(options, Mapping) or set(options) - {"timeout"}):
            raise ValidationFailed("the options of api.events.wait are {timeout}, a duration")
        timeout = (options or {}).get("timeout")
        if timeout is None:
            return None, name
        if not isinstance(timeout, str):
            raise ValidationFailed('timeout must be a duration such as "48h"', pointer="/timeout")
        return clock.now_ms() + clock.parse_duration(timeout, pointer="/timeout"), name

    def _start_child(self, call: HostCall) -> Begun:
        process_id, given, options = [*call.args, None, None, None][:3]
        shown = "call api.processes.execute(process, input, {wait: true | false})"
        if len(call.args) > 3 or not isinstance(process_id, str):
            raise ValidationFailed(shown)
        if options is not None and (not isinstance(options, Mapping) or set(options) - {"wait"}):
            raise ValidationFailed(shown)
        waits = (options or {}).get("wait", False)
        if not isinstance(waits, bool):
            raise ValidationFailed(shown, pointer="/wait")
        if process_id not in self.grants.processes:
            name = process_id[:63]
            raise PolicyDenied(f"this step has no grant for the process {name}; add grants: processes: [{name}]")
        child = self.children.prepare(self.claim, process_id, {} if given is None else given)

        def record() -> tuple[PendingCall | None, Any]:
            started = child.insert()
            if not waits:
                return None, started
            return self._noted(self._pending(call, "child", started["execution_id"], process_id, None)), None

        return Begun(record)

    def _pending(self, call: HostCall, kind: str, token: str, name: str, due: int | None) -> PendingCall:
        latest = clock.now_ms() + self.longest_ms
        return PendingCall(*self.run_key, call.id, kind, token, name, latest if due is None else min(due, latest))

    def _noted(self, pending: PendingCall) -> PendingCall:
        suspension.add_call(self.claim, pending)
        return pending

    # -- what ends them

    def settle_due(self, pending: PendingCall) -> tuple[bool, Any]:
        """Inside a write: what a call whose time has come is answered when nobody did."""
        scope, token = self.claim.scope, pending.token
        if pending.kind == "timer":
            return True, None
        if pending.kind in ("approval", "input"):
            return True, approvals.answer_of(approvals.expire_approval(scope, token))
        what = f"the event {pending.name!r} did not come" if pending.kind == "event" else f"{pending.name} did not finish"
        return False, {
            "code": "wait_timed_out", "message": f"{what} in time", "retryable": False, "failure_class": "timeout", "details": [],
        }  # fmt: skip


def _arguments(call: HostCall, count: int, shown: str) -> list[Any]:
    if len(call.args) != count:
        raise ValidationFailed(f"call {shown}")
    return call.args


def told(pending: PendingCall, step: str) -> dict[str, Any]:
    """What callers are told of a call that waits."""
    shown: dict[str, Any] = {"kind": "human" if pending.kind in ("approval", "input") else pending.kind, "step": step}
    shown |= {"path": pending.path, "call": pending.call, "until": clock.rfc3339(pending.due_at)}
    if pending.iteration:
        shown["iteration"] = pending.iteration
    if pending.kind in ("approval", "input"):
        return shown | {"approval_id": pending.token, "title": pending.name}
    if pending.kind == "event":
        return shown | {"token": pending.token, "name": pending.name}
    return shown | {"execution_id": pending.token, "process_id": pending.name} if pending.kind == "child" else shown
