"""Turns each event of a trigger into exactly one execution.

An event is recorded as a `pending` row in the transaction in which it happens.  The input, which may need the sandbox, is
evaluated afterwards, and the execution is committed together with the event's new status; after a crash in between, the next
tick continues.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core import clock, ids, logs
from appliance.core.database import db
from appliance.core.database.sentence_fields import dump_error
from appliance.core.errors import (
    ApplianceError,
    ConcurrencyLimited,
    Conflict,
    Draining,
    InvalidSignature,
    NotFound,
    Overloaded,
    RateLimited,
    StorageFull,
    ValidationFailed,
)
from appliance.core.leases.open_tenants import is_open
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import failures, metrics
from appliance.monitor import logs as log_lines
from appliance.processes.definitions.compiled import CompiledVersion
from appliance.processes.engine.children import MAX_DEPTH
from appliance.processes.engine.evaluation import fill
from appliance.processes.engine.failures import StepFailed, from_appliance_error, make_error
from appliance.processes.executions import service as executions
from appliance.processes.executions.recovery import find_failed
from appliance.processes.executions.starting import ExecutionOrigin, StartRequest, insert_execution
from appliance.processes.scheduling.backlog import QueueFull
from appliance.sandbox import Pool

from .models import Firing, TriggerState

log = logging.getLogger(__name__)
FIRE = "trigger"
MAX_ATTEMPTS = 8
LOST_AFTER_MS = 5_000
MAX_KEY = 200
FIRINGS = metrics.registry.counter("gos_trigger_firings_total", "Events of triggers.", ("kind", "status"))
Enqueue = Callable[[str, str, int], None]
Load = Callable[[TenantScope, str, int], CompiledVersion]


@dataclass(frozen=True)
class TriggerKey:
    """A registered trigger."""

    process_id: str
    trigger_id: str
    kind: str


@dataclass(frozen=True)
class Event:
    """One event: `key` is unique among the events of the trigger, the input is built from `data`.

    `content` is the digest of the signed content where the key is not part of it; `depth` is the number of events that led
    to this one.
    """

    key: str
    data: Mapping[str, Any]
    due_at: int | None = None
    depth: int = 0
    content: str | None = None


@dataclass(frozen=True)
class StartedExecution:
    """The execution of an event, and whether this call started it."""

    execution_id: str
    is_new: bool = True


@dataclass(frozen=True)
class _Prepared:
    version: int
    input: Mapping[str, Any]


class _Unavailable(Exception):
    """The appliance is temporarily unable to handle the event, which is retried."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class Firings:
    """Records events and turns them into executions."""

    def __init__(self, pool: Pool, load: Load, enqueue: Enqueue, wake: Callable[[str, str], None]) -> None:
        self._pool, self._load, self._enqueue, self._wake = pool, load, enqueue, wake

    # -- recording

    def record(self, scope: TenantScope, mark: TriggerKey, event: Event) -> str | None:
        """Records an event that will become an execution; None when it was recorded before; inside a write.

        An event too deep in a chain of events is recorded as a failure of the trigger.
        """
        db.require_exclusive()
        if event.depth > MAX_DEPTH:
            message = Sentence(
                "this event follows a chain of %(max_depth)s events, which is the limit; check whether a process triggers "
                "itself endlessly",
                max_depth=MAX_DEPTH,
            )
            return self.record_failure(scope, mark, event, make_error("too_deep", "validation", message))
        firing_id = _insert(scope, mark, event, "pending", clock.now_ms() + LOST_AFTER_MS)
        if firing_id is not None:
            self._wake(scope.tenant_id, firing_id)
        return firing_id

    def record_skipped(self, scope: TenantScope, mark: TriggerKey, event: Event) -> str | None:
        """Records an event that is skipped according to the definition; inside a write."""
        return _insert(scope, mark, event, "skipped", None)

    def record_failure(self, scope: TenantScope, mark: TriggerKey, event: Event, error: dict[str, Any]) -> str | None:
        """Records an event that fails with `error`, also in Monitor; inside a write."""
        firing_id = _insert(scope, mark, event, "failed", None)
        if firing_id is not None:
            _publish_failure(scope, firing_id, mark, error)
        return firing_id

    # -- performing

    def perform(self, tenant_id: str, firing_id: str) -> None:
        """Turns a pending event into its execution; a repeated or late message has no effect."""
        scope = TenantScope(tenant_id, "trigger", request_id=firing_id)
        with logs.log_context(request_id=firing_id):
            row = scope.find(Firing, id=firing_id)
            if row is None or row.status != "pending" or not is_open(tenant_id):
                return
            mark = TriggerKey(row.process_id, row.trigger_id, row.kind)
            try:
                self._settle(scope, mark, row, self._prepare(scope, mark, row.event))
            except _Unavailable as error:
                db.write(partial(_schedule_retry, scope, row, mark, error.error))
            except QueueFull as error:  # no event of a burst may be lost
                db.write(partial(_schedule_retry, scope, row, mark, _error_object(error)))
            except (ApplianceError, StepFailed) as error:
                failure = _error_object(error)
                db.write(lambda: _fail(scope, row.id, mark, failure))

    def retry(self, scope: TenantScope, firing_id: str) -> str:
        """Retries a failed event; returns the id of its execution, or raises the reason why it cannot start."""
        row = scope.get(Firing, id=firing_id)
        if row.execution_id is not None:
            return str(row.execution_id)
        if row.status != "failed" or row.event is None:
            raise Conflict(
                Sentence("the event is %(status)s; only a failed event whose data is stored can be retried", status=row.status)
            )
        if row.depth > MAX_DEPTH:
            raise Conflict("the event is too deep in a chain of events; execute the process manually")
        mark = TriggerKey(row.process_id, row.trigger_id, row.kind)
        try:
            started = self._settle(scope, mark, row, self._prepare(scope, mark, row.event)).execution_id
        except (_Unavailable, StepFailed) as error:
            raise Conflict(Sentence("the retry failed as well: %(message)s", message=error.error['message'])) from error
        db.write(lambda: failures.record_recovered(scope, [firing_id], find_failed))
        return started

    def fire(self, scope: TenantScope, mark: TriggerKey, event: Event) -> StartedExecution:
        """Starts the execution of an event at once, in one transaction with the event; a repeated event returns the same.

        A reason not to start is recorded as a failure of the trigger and raised; the event can then be sent again.
        """
        if (existing := _find(scope, mark, event.key)) is not None and existing.execution_id is not None:
            return StartedExecution(existing.execution_id, is_new=False)
        try:
            prepared = self._prepare(scope, mark, event.data)
        except _Unavailable as error:
            raise Overloaded("the appliance is busy; send the request again", headers={"Retry-After": "5"}) from error
        except (ApplianceError, StepFailed) as error:
            failure = _error_object(error)
            db.write(lambda: self._record_refusal(scope, mark, event, failure))
            if isinstance(error, ApplianceError):
                raise
            raise ValidationFailed(error.error["message"]) from error

        def write() -> StartedExecution:
            _insert(scope, mark, event, "pending", None)
            row = _find(scope, mark, event.key)
            if row is None:
                raise NotFound("the trigger no longer exists")
            if event.content is not None and _is_repeated(scope, mark, event):
                raise InvalidSignature("the same content was received before with another delivery id")
            return self._start(scope, mark, row, prepared)

        try:
            started = db.write(write)
        except (ConcurrencyLimited, RateLimited) as refusal:
            failure = _error_object(refusal)
            db.write(lambda: self._record_refusal(scope, mark, event, failure))
            raise
        FIRINGS.inc(1, mark.kind, "started" if started.is_new else "repeated")
        return started

    def _record_refusal(self, scope: TenantScope, mark: TriggerKey, event: Event, error: dict[str, Any]) -> None:
        if self.record_failure(scope, mark, event, error) is None and (row := _find(scope, mark, event.key)) is not None:
            _fail(scope, row.id, mark, error)

    def _prepare(self, scope: TenantScope, mark: TriggerKey, data: Any) -> _Prepared:
        """Evaluates the input of an event; raises StepFailed or a coded error when it is invalid, _NotNow when overloaded."""
        try:
            version = executions.resolve_version(scope, mark.process_id, None)
            compiled = self._load(scope, mark.process_id, version)
            trigger = next((each for each in compiled.definition.triggers if each.id == mark.trigger_id), None)
            if trigger is None:
                raise NotFound(
                    Sentence("the published version no longer has the trigger %(trigger_id)s", trigger_id=repr(mark.trigger_id))
                )
            payload: Any = {} if mark.kind == "schedule" else dict(data)
            if trigger.input is not None:
                event = {**data, "id": mark.trigger_id, "kind": mark.kind}
                names = {"trigger": event, "tenant": {"id": scope.tenant_id}}
                payload = fill(self._pool, {"input": trigger.input}, names, clock.now_ms())["input"]
            if not isinstance(payload, dict):
                raise ValidationFailed("the trigger's `input` must evaluate to an object: it becomes the execution's input")
            executions.check_input(scope, compiled, payload)
        except (Overloaded, Draining, StorageFull) as error:
            raise _Unavailable(_error_object(error)) from error
        except StepFailed as failed:
            if failed.error["failure_class"] == "system":
                raise _Unavailable(failed.error) from failed
            raise
        return _Prepared(version, payload)

    def _settle(self, scope: TenantScope, mark: TriggerKey, row: Firing, prepared: _Prepared) -> StartedExecution:
        started = db.write(lambda: self._start(scope, mark, row, prepared))
        FIRINGS.inc(1, mark.kind, "started" if started.is_new else "repeated")
        return started

    def _start(self, scope: TenantScope, mark: TriggerKey, row: Firing, prepared: _Prepared) -> StartedExecution:
        """Starts the execution, or returns the one the event has already; inside a write."""
        now = clock.now_ms()
        mine = (scope.tenant_id, row.id)
        changed = db.execute(
            "UPDATE firing SET status = 'started', event = NULL, error = NULL, next_try_at = NULL "
            "WHERE tenant_id = ? AND id = ? AND status IN ('pending', 'failed')",
            mine,
        )
        if not changed:
            rows = db.rows("SELECT execution_id FROM firing WHERE tenant_id = ? AND id = ?", mine)
            if not rows or rows[0][0] is None:
                raise Conflict("the event has already been handled")
            return StartedExecution(rows[0][0], is_new=False)
        actor = scope.with_actor(f"trigger:{mark.process_id}/{mark.trigger_id}")
        request = StartRequest(prepared.input, prepared.version)
        execution, _ = insert_execution(
            actor, mark.process_id, prepared.version, request, ExecutionOrigin(depth=row.depth)
        )
        if execution.status == "queued" and execution.wait_reason is None:
            self._enqueue(scope.tenant_id, execution.id, execution.priority)
        db.execute("UPDATE firing SET execution_id = ? WHERE tenant_id = ? AND id = ?", (execution.id, *mine))
        _touch(scope, mark, last_fired_at=now, last_execution_id=execution.id, failed_in_row=0)
        return StartedExecution(execution.id)


def _is_repeated(scope: TenantScope, mark: TriggerKey, event: Event) -> bool:
    """Whether the same signed content was received before with another key."""
    rows = db.rows(
        "SELECT 1 FROM firing WHERE tenant_id = ? AND process_id = ? AND trigger_id = ? AND content = ? AND event_key <> ? "
        "AND status = 'started' LIMIT 1",
        (scope.tenant_id, mark.process_id, mark.trigger_id, event.content, event.key[:MAX_KEY]),
    )
    return bool(rows)


def _find(scope: TenantScope, mark: TriggerKey, key: str) -> Firing | None:
    return scope.find(Firing, process_id=mark.process_id, trigger_id=mark.trigger_id, event_key=key[:MAX_KEY])


def _insert(scope: TenantScope, mark: TriggerKey, event: Event, status: str, next_try_at: int | None) -> str | None:
    """Inserts the row of an event; None when it exists already; inside a write."""
    firing_id = ids.new("fir")
    changed = db.execute(
        "INSERT INTO firing (tenant_id, id, process_id, trigger_id, kind, event_key, status, at, due_at, event, content, depth, "
        "attempts, next_try_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?) "
        "ON CONFLICT (tenant_id, process_id, trigger_id, event_key) DO NOTHING",
        (
            scope.tenant_id, firing_id, mark.process_id, mark.trigger_id, mark.kind, event.key[:MAX_KEY], status, clock.now_ms(),
            event.due_at, db.dump_json(event.data), event.content, event.depth, next_try_at,
        ),
    )  # fmt: skip
    if changed and status != "pending":
        db.after_commit(lambda: FIRINGS.inc(1, mark.kind, status))
    return firing_id if changed else None


def _touch(scope: TenantScope, mark: TriggerKey, **changes: Any) -> None:
    mine = (TriggerState.process_id == mark.process_id) & (TriggerState.trigger_id == mark.trigger_id)
    scope.update(TriggerState, **changes).where(mine).execute()


def _schedule_retry(scope: TenantScope, row: Firing, mark: TriggerKey, error: dict[str, Any]) -> None:
    """Schedules the next attempt with exponential backoff, or fails the event after the last one; inside a write."""
    attempts = row.attempts + 1
    if attempts >= MAX_ATTEMPTS:
        _fail(scope, row.id, mark, error)
        return
    later = clock.now_ms() + 1_000 * 2**attempts
    changes = {"attempts": attempts, "next_try_at": later}
    scope.update(Firing, **changes).where((Firing.id == row.id) & (Firing.status == "pending")).execute()


def _fail(scope: TenantScope, firing_id: str, mark: TriggerKey, error: dict[str, Any]) -> None:
    """Marks the event as failed; inside a write."""
    changed = db.execute(
        "UPDATE firing SET status = 'failed', error = ?, next_try_at = NULL WHERE tenant_id = ? AND id = ? "
        "AND status IN ('pending', 'failed')",
        (dump_error(error), scope.tenant_id, firing_id),
    )
    if changed:
        db.after_commit(lambda: FIRINGS.inc(1, mark.kind, "failed"))
        _publish_failure(scope, firing_id, mark, error)


def _publish_failure(scope: TenantScope, firing_id: str, mark: TriggerKey, error: dict[str, Any]) -> None:
    """Records the failure in the event's row, the trigger, the log and Monitor; inside a write."""
    now = clock.now_ms()
    mine = (Firing.id == firing_id) & (Firing.status == "failed")
    scope.update(Firing, error=error).where(mine).execute()
    _touch(
        scope, mark, last_error=error, last_error_at=now, failed_in_row=TriggerState.failed_in_row + 1,
    )  # fmt: skip
    message = f"the trigger {mark.trigger_id} did not start an execution: {error['message']}"
    fields = {"trigger": mark.trigger_id, "firing": firing_id, "code": error["code"], "failure_class": error["failure_class"]}
    line = log_lines.Line(now, "error", "trigger", message, fields, process_id=mark.process_id, request_id=scope.request_id)
    log_lines.write_lines(scope, [line])
    failure = failures.Failure(
        mark.process_id, firing_id, f"trigger {mark.trigger_id}", error["failure_class"], error["code"], error["message"]
    )
    failures.record_failure(scope, failure)


def _error_object(error: ApplianceError | StepFailed) -> dict[str, Any]:
    return error.error if isinstance(error, StepFailed) else from_appliance_error(error).error
