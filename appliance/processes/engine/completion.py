"""The end of an execution: notifies followers and callers, withdraws open requests and answers a waiting parent."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.notices import notices
from appliance.core.events import hub
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.approvals import approvals
from appliance.monitor import webhooks
from appliance.processes.executions import recovery
from appliance.processes.host import tainting
from appliance.processes.models import Execution
from appliance.processes.scheduling import slots

from . import store, suspension


def record_status(
    scope: TenantScope, execution_id: str, status: str, error: dict[str, Any] | None = None, *, is_new: bool = False
) -> None:
    """Inside a commit: add an event for followers, and after the commit notify callers that wait for the end.

    `is_new`: the execution was inserted in this commit, so other processes have not heard of it.
    """
    data: dict[str, Any] = {"status": status}
    if error is not None:
        data["error"] = {"code": error["code"], "message": error["message"]}
    store.add_event(scope, execution_id, status, data)
    if event := _WEBHOOK_EVENTS.get(status):
        webhooks.emit(scope, event, lambda: _to_payload(scope, execution_id, data))
    if status in store.FINISHED:
        db.after_commit(lambda: _announce_end(execution_id, is_new))


ENDED = "execution"  # the topic of notices


def _announce_end(execution_id: str, is_new: bool) -> None:
    """After the commit: tell the callers that wait in this process and in others."""
    completion_signal.notify(execution_id)
    if not is_new:
        notices.notify_others(ENDED, execution_id)


def look_ahead(scope: TenantScope, process_id: str, status: str) -> None:
    """At the start of a commit that ends an execution: announce the queries of those who listen for the end."""
    if status in _WEBHOOK_EVENTS:
        webhooks.look_ahead(scope)
    hub.publish(ExecutionEnding(scope, process_id))


_WEBHOOK_EVENTS = {
    "succeeded": "execution.succeeded", "failed": "execution.failed", "timed_out": "execution.failed",
    "expired": "execution.failed", "waiting": "execution.waiting",
}  # fmt: skip


def _to_payload(scope: TenantScope, execution_id: str, data: dict[str, Any]) -> dict[str, Any]:
    """The webhook payload of an execution: its ids and status, never the data it worked on."""
    row = scope.get(Execution, id=execution_id)
    reason = {"wait_reason": row.wait_reason} if data["status"] == "waiting" else {}
    return {"execution_id": row.id, "process_id": row.process_id, "version": row.version, **data, **reason}


@dataclass(frozen=True)
class Child:
    """A finished execution, as its parent sees it."""

    execution_id: str
    process_id: str
    status: str
    output: Any = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True)
class ExecutionEnding:
    """An execution of the process is about to end.  Published at the start of the commit, for queries to announce."""

    scope: TenantScope
    process_id: str


@dataclass(frozen=True)
class ExecutionEnded:
    """An execution has ended.  Published inside the commit."""

    scope: TenantScope
    execution: Child


@dataclass(frozen=True)
class CallWithdrawn:
    """A step no longer waits for a call of this kind, such as `agent`.  Published inside the commit."""

    scope: TenantScope
    kind: str
    token: str


def close_execution(scope: TenantScope, child: Child, *, is_new: bool = False) -> None:
    """Inside a commit: close its open calls, free its slot, and answer its parent, passing on where its data came from.

    `is_new`: it was inserted in this commit, so it has no open calls, no slot and no parent, and is no retry.
    """
    if is_new:
        hub.publish(ExecutionEnded(scope, child))
        return
    for parent, retry_of, slot, has_calls, is_awaited in db.rows(_TIES, (scope.tenant_id, child.execution_id)):
        if parent or retry_of or slot is not None:
            db.require_exclusive()  # the end changes other executions
        if parent:
            tainting.add_sources(scope, parent, tainting.sources_of(scope, child.execution_id))
        if retry_of and child.status == "succeeded":
            recovery.note_success(scope, retry_of)
        if has_calls:
            withdraw_calls(scope, child.execution_id)
        if slot is not None:
            slots.fill_slots(scope, child.process_id, slot)
        hub.publish(ExecutionEnded(scope, child))
        if is_awaited:
            _answer_parent(scope, child)


# What an execution is tied to: its parent and slot, calls that it waits for, and one that waits for it.
_TIES = (
    "SELECT parent, retry_of, slot, "
    "EXISTS (SELECT 1 FROM pending_call c WHERE c.tenant_id = e.tenant_id AND c.execution_id = e.id) "
    "OR EXISTS (SELECT 1 FROM suspended_step s WHERE s.tenant_id = e.tenant_id AND s.execution_id = e.id), "
    "EXISTS (SELECT 1 FROM pending_call c WHERE c.tenant_id = e.tenant_id AND c.token = e.id) "
    "FROM execution e WHERE tenant_id = ? AND id = ?"
)


def _answer_parent(scope: TenantScope, child: Child) -> None:
    if child.status == "succeeded":
        suspension.answer_call(scope, child.execution_id, True, child.output)
        return
    error = child.error or {}
    message = Sentence(
        "the child execution %(execution_id)s of %(process_id)s %(ended)s",
        execution_id=child.execution_id, process_id=child.process_id, ended=_ENDED_TEXTS[child.status],
    )
    failure = {
        "code": "child_failed",
        "message": Sentence("%(message)s: %(message2)s", message=message, message2=error["message"]) if error else message,
        "retryable": bool(error.get("retryable", False)),
        "failure_class": error.get("failure_class", "user_code"),
        "details": [],
    }  # fmt: skip
    suspension.answer_call(scope, child.execution_id, False, failure)


def withdraw_calls(scope: TenantScope, execution_id: str) -> None:
    """Inside a commit: withdraw every open call of an execution."""
    for each in suspension.open_calls(scope, execution_id):
        db.require_exclusive()  # who answers the call must not do so at the same time
        _withdraw(scope, each)
    suspension.drop_execution(scope, execution_id)


_ENDED_TEXTS = {"failed": "failed", "cancelled": "was cancelled", "timed_out": "timed out", "expired": "expired before it started"}


def close_step(scope: TenantScope, execution_id: str, path: str, iteration: str) -> None:
    """Inside a commit: an attempt of a step has ended, so withdraw the calls it still waits for."""
    waiting = suspension.calls_of_step(scope, execution_id, path, iteration)
    if not waiting:
        return
    for each in waiting:
        if each.ok is None:
            db.require_exclusive()
            _withdraw(scope, each)
    suspension.drop_step(scope, execution_id, path, iteration)


def _withdraw(scope: TenantScope, pending: suspension.PendingCall) -> None:
    if pending.kind in ("approval", "input", "model"):
        approvals.withdraw_approval(scope, pending.token, "the step that asked is no longer waiting")
    elif pending.kind == "child":
        child = scope.find(Execution, id=pending.token)
        if child is not None and child.status not in store.FINISHED:
            cancel(scope, child)
    else:
        hub.publish(CallWithdrawn(scope, pending.kind, pending.token))


def cancel(scope: TenantScope, row: Execution) -> None:
    """Inside a write: cancel an idle execution at once, or ask its runner to stop; does nothing if its end is decided.

    An execution with steps to undo is resumed to undo them.
    """
    is_row = Execution.id == row.id
    changes: dict[str, Any]
    if row.aftermath is not None:
        return
    if row.status in ("queued", "waiting") and store.has_undoable(scope, row.id):
        changes = {"status": "cancelling", "cancel_requested": True, "owner": None, "wait_reason": None, "waiting_for": None}
        scope.update(Execution, **changes, next_run_at=None).where(is_row).execute()
        store.add_event(scope, row.id, "cancelling", {"status": "cancelling"})
        db.after_commit(lambda: hub.publish(suspension.ExecutionAnswered(scope.tenant_id, row.id)))
    elif row.status in ("queued", "scheduled", "waiting"):
        now = clock.now_ms()
        changes = {"status": "cancelled", "finished_at": now, "next_run_at": None, "wait_reason": None}
        scope.update(Execution, **changes, waiting_for=None, fence=row.fence + 1).where(is_row).execute()
        store.close_runs(scope, row.id, "cancelled")
        record_status(scope, row.id, "cancelled")
        close_execution(scope, Child(row.id, row.process_id, "cancelled"))
    else:
        scope.update(Execution, cancel_requested=True, status="cancelling").where(is_row).execute()
        store.add_event(scope, row.id, "cancelling", {"status": "cancelling"})
        db.after_commit(lambda: hub.publish(suspension.CancelRequested(row.id)))


class CompletionSignal:
    """The callers in this OS process that wait for executions to finish."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callable[[], None]]] = {}
        self._tenants: dict[str, str] = {}
        self._lock = Lock()
        self.on_subscribe: Callable[[], None] = lambda: None

    def subscribe(self, tenant_id: str, execution_id: str, callback: Callable[[], None]) -> None:
        """Call back once the execution has finished.  The caller must check the row too: it may have finished already."""
        with self._lock:
            self._callbacks.setdefault(execution_id, []).append(callback)
            self._tenants[execution_id] = tenant_id
        self.on_subscribe()

    def list_awaited(self) -> frozenset[tuple[str, str]]:
        """Tenant and id of every execution that a caller waits for."""
        with self._lock:
            return frozenset((tenant_id, execution_id) for execution_id, tenant_id in self._tenants.items())

    def unsubscribe(self, execution_id: str, callback: Callable[[], None]) -> None:
        """Remove a callback."""
        with self._lock:
            remaining = [c for c in self._callbacks.get(execution_id, []) if c is not callback]
            if remaining:
                self._callbacks[execution_id] = remaining
            else:
                self._callbacks.pop(execution_id, None)
                self._tenants.pop(execution_id, None)

    def notify(self, execution_id: str) -> None:
        """Call every callback of this execution once."""
        with self._lock:
            callbacks = self._callbacks.pop(execution_id, [])
            self._tenants.pop(execution_id, None)
        for callback in callbacks:
            callback()


completion_signal = CompletionSignal()
