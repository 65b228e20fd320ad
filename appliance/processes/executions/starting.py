"""Starts executions: the rows of new ones, inserted when they are accepted or, if they start at once, with their first commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import Conflict, IdempotencyMismatch, NotFound
from appliance.core.leases.open_tenants import FENCED_ONE
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.engine import store
from appliance.processes.engine.deferred import NO_COLUMNS, Columns
from appliance.processes.host import tainting
from appliance.processes.models import Execution
from appliance.processes.scheduling import admission, backlog, concurrency_quota
from appliance.processes.scheduling.admission import Admission, AdmissionRequest
from appliance.processes.startable import StartableVersion
from appliance.quotas import daily
from appliance.tenants import RETENTION_MS
from appliance.tenants import service as tenants

from . import input_values

EXECUTIONS_PER_DAY = "executions_per_day"


@dataclass(frozen=True)
class StartRequest:
    """How to start an execution; `token` makes a repeated request answer the same execution.

    It expires unless it starts within `expires_ms` of its time (None: the definition's setting).  `depth` is its nesting
    below the first execution, `tainted_by` the sources of untrusted data in its input.
    """

    input: Mapping[str, Any]
    version: int | None = None
    run_at: int | None = None
    priority: int = 0
    label: str | None = None
    token: str = ""
    expires_ms: int | None = None
    depth: int = 0
    tainted_by: Sequence[str] = ()


@dataclass(frozen=True)
class ExecutionOrigin:
    """Where a new execution comes from.

    `owner` claims it at once until `lease_until`.  A retry names the execution it repeats, and with `only_retry` must be its
    only one.  A child has a `parent` and is nested `depth` levels below `root`; `rank` replaces its own place in the queue.
    """

    owner: str | None = None
    lease_until: int = 0
    retry_of: str | None = None
    only_retry: bool = False
    parent: str | None = None
    depth: int = 0
    root: str | None = None
    rank: int | None = None


def _find_repeated(scope: TenantScope, request: StartRequest, now: int) -> Execution | None:
    """The execution of the same request while its Idempotency-Key is remembered; IdempotencyMismatch for another input."""
    execution = scope.find(Execution, idempotency=request.token)
    if execution is None:
        return None
    if now - execution.created_at >= RETENTION_MS:
        scope.update(Execution, idempotency=None).where(Execution.id == execution.id).execute()
        return None
    if execution.input != request.input:
        raise IdempotencyMismatch("this Idempotency-Key was used with another body; use a new key for a new request")
    return execution


def insert_execution(
    scope: TenantScope, process_id: str, version: int, request: StartRequest, origin: ExecutionOrigin
) -> tuple[Execution, bool]:
    """Inside a write: insert an execution; answers its row, and False if the same request had already started it.

    Overloaded while the tenant is being reset, NotFound while it is deleted: nothing of it begins then.
    """
    now = clock.now_ms()
    db.look_ahead(FENCED_ONE, (scope.tenant_id,))
    if request.token or origin.only_retry or origin.parent is not None:
        db.require_exclusive()  # the execution must be the only one of its kind, or fit in beside others
    if request.token and (repeated := _find_repeated(scope, request, now)) is not None:
        return repeated, False
    if origin.only_retry and (other := scope.find(Execution, retry_of=origin.retry_of)) is not None:
        raise Conflict(Sentence("the execution has already been retried as %(id)s", id=other.id))
    entry = admission.admit(scope, process_id, version, AdmissionRequest(request.input, request.run_at, request.expires_ms), now)
    status = _status_of(scope, entry, origin)
    if status == "queued" and origin.parent is None:  # children are admitted before the commit that records their call
        backlog.admit_queued(scope)
    elif status == "scheduled":
        backlog.admit_planned(scope)
    (daily.admit if origin.parent is None else daily.add)(scope, EXECUTIONS_PER_DAY)
    row = _new_row(scope, process_id, request, origin, {"version": version, **_state(status, entry, request, origin, now)})
    tenants.refuse_fenced(scope.tenant_id)
    insert_row(row)
    if request.tainted_by:
        tainting.add_sources(scope, row.id, request.tainted_by)
    return row, True


def _status_of(scope: TenantScope, entry: Admission, origin: ExecutionOrigin) -> str:
    """The first status: an execution that could run at once is queued when the tenant runs as many as it may."""
    if entry.is_scheduled:
        return "scheduled"
    may_run = origin.owner is not None and entry.wait_reason is None
    return "running" if may_run and concurrency_quota.take_place(scope) else "queued"


def new_running(
    scope: TenantScope, process_id: str, startable: StartableVersion, request: StartRequest, origin: ExecutionOrigin
) -> Execution | None:
    """The row, not inserted yet, of an execution that may start at once and depends on no other; None if it may have to wait.

    Outside a write: whether it may start is decided now, as for one that had been inserted now.
    """
    if request.token or request.run_at is not None or request.tainted_by:
        return None
    if concurrency_quota.is_limited(scope.tenant_id) or not daily.may_begin(scope, EXECUTIONS_PER_DAY):
        return None
    now = clock.now_ms()
    entry = admission.admit_at_once(scope, process_id, startable, AdmissionRequest(request.input, None, request.expires_ms), now)
    if entry is None:
        return None
    state = _state("running", entry, request, origin, now)
    return _new_row(scope, process_id, request, origin, {"version": startable.version, **state})


def _new_row(scope: TenantScope, process_id: str, request: StartRequest, origin: ExecutionOrigin, state: Columns) -> Execution:
    row = Execution()
    # Not through the constructor, whose way of setting attributes took a twentieth of the time of a whole execution.
    row.__data__.update(
        tenant_id=scope.tenant_id, id=ids.new("exe"), process_id=process_id, input=request.input,
        label_text=request.label, retry_of=origin.retry_of, priority=request.priority, idempotency=request.token or None,
        active_ms=0, lease_until=origin.lease_until, cancel_requested=False, actor=scope.actor,
        request_id=scope.request_id, parent=origin.parent, root=origin.root, depth=origin.depth, trace=scope.trace or None,
        **state,
    )  # fmt: skip
    return row


def _state(status: str, entry: Admission, request: StartRequest, origin: ExecutionOrigin, now: int) -> Columns:
    is_running = status == "running"
    state = {
        "status": status, "wait_reason": entry.wait_reason, "waiting_for": entry.waiting_for(), "created_at": now,
        "enqueued_at": now, "expires_at": entry.expires_at, "next_run_at": entry.begins_at if entry.is_scheduled else None,
        "rank": admission.rank_of(entry.begins_at, request.priority) if origin.rank is None else origin.rank,
        "owner": origin.owner if is_running else None, "started_at": now if is_running else None, "fence": int(is_running),
        "claims": int(is_running),
    }  # fmt: skip
    if entry.slot is not None:
        state |= {"slot": entry.slot.key, "slot_limit": entry.slot.limit, "slot_behaviour": entry.slot.behaviour}
    return state


_COLUMNS = (
    "tenant_id", "id", "process_id", "version", "status", "retry_of", "priority", "idempotency", "created_at", "enqueued_at",
    "started_at", "finished_at", "next_run_at", "active_ms", "owner", "lease_until", "fence", "claims", "actor", "request_id",
    "parent", "root", "depth", "wait_reason", "rank", "expires_at", "slot", "slot_limit", "slot_behaviour", "trace",
)  # fmt: skip
_JSON_COLUMNS = ("input", "output", "waiting_for")
_INSERT = (
    f"INSERT INTO execution ({', '.join((*_COLUMNS, *_JSON_COLUMNS))}, label, cancel_requested) "  # noqa: S608 our own names
    f"VALUES ({', '.join('?' * (len(_COLUMNS) + len(_JSON_COLUMNS) + 2))})"
)


def insert_row(row: Execution, ended: Mapping[str, Any] = NO_COLUMNS) -> None:
    """Inside a write: insert a new execution with its search values and first event; `ended` are the columns of its end."""
    scope = TenantScope(row.tenant_id, row.actor)
    values = {**row.__data__, **ended}
    encoded = [None if values.get(name) is None else db.dump_json(values[name]) for name in _JSON_COLUMNS]
    db.send(_INSERT, (*map(values.get, _COLUMNS), *encoded, row.label_text, 0))
    input_values.save_values(scope, row.id, row.input)
    store.add_event(scope, row.id, row.status, {"status": row.status})


_STATE = (
    f"SELECT EXISTS ({FENCED_ONE}), "  # noqa: S608
    "EXISTS (SELECT 1 FROM execution WHERE tenant_id = ? AND id = ?), "
    "EXISTS (SELECT 1 FROM process_version WHERE tenant_id = ? AND process_id = ? AND version = ?)"
)


def insert_once(row: Execution, ended: Mapping[str, Any]) -> bool:
    """The same for an execution that was admitted before this write; False if it is inserted already.

    NotFound if its version has been deleted since; Overloaded and NotFound as for `insert_execution`.
    """
    params = (row.tenant_id, row.tenant_id, row.id, row.tenant_id, row.process_id, row.version)
    ((is_fenced, is_inserted, has_version),) = db.rows(_STATE, params)
    if is_inserted:
        return False
    if is_fenced:
        tenants.refuse_fenced(row.tenant_id)
    if not has_version:
        raise NotFound(Sentence("the process %(process_id)s has been deleted", process_id=repr(row.process_id)))
    daily.add(TenantScope(row.tenant_id, row.actor), EXECUTIONS_PER_DAY)
    insert_row(row, ended)
    return True
