"""Call records: written before a call is sent and completed with its outcome, so that no write in doubt is sent twice."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from peewee import IntegrityError

from appliance.connectors.contract import ConnectorError, Effect, RateLimited, Withdrawn
from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import Conflict, ConnectorFailed, Detail, IdempotencyInFlight, IdempotencyMismatch
from appliance.core.leases import Lease, LeaseLost, LeaseTable, OrphanFinder
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.integrations import discovery
from appliance.integrations.circuit import Withheld
from appliance.integrations.models import CallRow, IntegrationRow
from appliance.integrations.retries import latest_of
from appliance.monitor import Line, tally, webhooks, write_lines
from appliance.tenants import service as tenants

log = logging.getLogger(__name__)

Status = Literal["queued", "running", "waiting", "succeeded", "failed"]
Outcome = Literal["done", "not_done", "unknown"]
IsAlive = Callable[[str], bool]
"""Whether the process of that name is alive."""
Admit = Callable[[str, bool], None]
"""Called inside the write that begins a call, with its id and whether it already used the draft's approval before; an
exception rolls the write back."""
T = TypeVar("T")
_MAX_STORED_BYTES = 1 << 20
_GRACE_MS = 30_000
_MOST_CLOSED = 500
_INTERRUPTED = {"class": "system_error", "message": "The appliance stopped while the call was in progress.", "details": {}}
FAILING_AFTER = 3
_FAILURE_CLASSES = frozenset({"auth_error", "config_error", "transient_error", "system_error"})


# A late result replaces an unknown outcome, but not that of a later try.
LEASES = LeaseTable(
    CallRow, ("tenant_id", "id"), lease="deadline_at", owner="owner", fence="tries", running="status = 'running'",
    on_claim="status = 'running'", on_reclaim="status = CASE WHEN effect = 'write' THEN 'waiting' ELSE 'failed' END, "
    "outcome = 'unknown', pending = NULL", settles_late=True, stops_with_tenant=True,
)  # fmt: skip


class OutcomeUnknown(ConnectorFailed):
    """A write was sent and its outcome is unknown; a person must settle the earlier call first."""

    def __init__(self, row: CallRow) -> None:
        message = Sentence(
            "The call %(id)s (%(action)s of %(integration_id)s) was sent without an answer: check in the foreign "
            "system whether it happened, then settle that call. Until then it is not sent again.",
            id=row.id, action=row.action, integration_id=row.integration_id,
        )
        super().__init__(message, details=[Detail("", "outcome_unknown", message)])
        self.extra = {"call_id": row.id, "outcome": "unknown", "retryable": False}


@dataclass(frozen=True)
class Origin:
    """The place in an execution a call comes from; `call` is the number of the host call in step code."""

    execution_id: str
    path: str = ""
    iteration: str = ""
    attempt: int = 1
    call: int | None = None


@dataclass(frozen=True)
class Draft:
    """A call about to be made; `input` has secrets redacted, `digest` covers action and original input."""

    integration: str
    connector: str
    action: str
    effect: Effect
    input: Any
    digest: str
    key: str | None = None
    origin: Origin | None = None
    seconds: float = 30.0
    approval_id: str | None = None
    decision: Any = None


@dataclass(frozen=True)
class StartedCall:
    """A recorded call that may be sent, with its key; `began_at` in epoch ms, `fence` the number of this try."""

    call_id: str
    sent_key: str
    began_at: int
    fence: int = 1


@dataclass(frozen=True)
class EarlierResult:
    """The output of an earlier identical call that succeeded."""

    call_id: str
    output: Any


@dataclass(frozen=True)
class Completion:
    """The completion of a call.  `error` is `{class, message, details, retry_after?}`; `lines` are the connector's log lines.

    `withdrawn` says that the foreign system no longer offers the action as it was discovered.
    """

    status: Status
    outcome: Outcome
    output: Any = None
    error: dict[str, Any] | None = None
    lines: Sequence[Line] = ()
    traffic: dict[str, Any] | None = None
    withdrawn: bool = False


def completion_of(error: ConnectorError, effect: Effect) -> Completion:
    """The completion of a failed call: a write of unknown outcome waits to be settled."""
    failure: dict[str, Any] = {"class": error.error_class, "message": error.message, "details": error.details}
    if isinstance(error, RateLimited | Withheld) and error.retry_after is not None:
        failure["retry_after"] = error.retry_after
    in_doubt = effect == "write" and error.outcome == "unknown"
    return Completion("waiting" if in_doubt else "failed", error.outcome, error=failure, withdrawn=isinstance(error, Withdrawn))


def begin_call(scope: TenantScope, draft: Draft, owner: str, is_alive: IsAlive, admit: Admit) -> StartedCall | EarlierResult:
    """Record durably that the call is about to be sent, or return the result of the same call made before.

    One key with one request is one call: if it succeeded, its result is returned; if it failed, it may be sent again; if it is
    running, IdempotencyInFlight; if its process is gone, an idempotent call is taken over and a write is OutcomeUnknown.  A key
    with a different request is an IdempotencyMismatch, except inside an execution, where a retry may send something else: that
    is a separate call with its own key.  Overloaded while the tenant is being reset, NotFound while it is deleted.
    """

    def begin() -> StartedCall | EarlierResult | CallRow:
        tenants.refuse_fenced(scope.tenant_id)
        rows = [] if draft.key is None else _rows_of_key(scope, draft)
        if blocked := next((row for row in rows if _is_in_doubt(row, is_alive)), None):
            _mark_unknown(scope, blocked)
            return blocked
        same = next((row for row in rows if row.request_digest == draft.digest), None)
        if same is None and rows and draft.origin is None:
            raise IdempotencyMismatch(
                Sentence("the key %(key)s was used for a different request; use a new key", key=repr(draft.key))
            )
        if same is None:
            started = _insert(scope, draft, owner, first=not rows)
            admit(started.call_id, False)
            return started
        _check_not_running(same, is_alive)
        return _repeat(scope, same, draft, owner, admit)

    result = _write(scope, draft, begin)
    if isinstance(result, CallRow):
        raise OutcomeUnknown(result)
    return result


def _rows_of_key(scope: TenantScope, draft: Draft) -> list[CallRow]:
    """The calls with this key, each replaced by its latest retry."""
    query = scope.select(CallRow).where((CallRow.integration_id == draft.integration) & (CallRow.idempotency_key == draft.key))
    return [latest_of(scope, row) for row in query]


def _is_in_doubt(row: CallRow, is_alive: IsAlive) -> bool:
    """Whether the row is a write that may have been sent, and is not settled."""
    if row.effect != "write":
        return False
    return row.status == "waiting" or (row.status == "running" and not _runs(row, is_alive))


def _runs(row: CallRow, is_alive: IsAlive) -> bool:
    return clock.now_ms() < row.deadline_at + _GRACE_MS and is_alive(row.owner)


def _check_not_running(row: CallRow, is_alive: IsAlive) -> None:
    if row.status == "queued" or (row.status == "running" and _runs(row, is_alive)):
        raise IdempotencyInFlight(
            Sentence("the call %(id)s with this key is still running; try again shortly", id=row.id),
            extra={"call_id": row.id, "retryable": True},
        )


def find_approved(scope: TenantScope, draft: Draft) -> tuple[str, str] | None:
    """The approval that a call with this key used for the same request, and the digest of the approved action."""
    rows = [] if draft.key is None else _rows_of_key(scope, draft)
    for row in rows:
        if row.request_digest == draft.digest and row.approval_id is not None:
            return row.approval_id, (row.decision or {}).get("action_digest", "")
    return None


def _repeat(scope: TenantScope, row: CallRow, draft: Draft, owner: str, admit: Admit) -> StartedCall | EarlierResult:
    if row.status == "succeeded":
        if not row.output_kept:
            raise Conflict(
                Sentence("the call %(id)s succeeded, but its output was too large to store and cannot be returned again", id=row.id)
            )
        return EarlierResult(row.id, row.output)
    now = clock.now_ms()
    changes = {
        "outcome": None, "error": None, "started_at": now, "finished_at": None,
        "attempt": draft.origin.attempt if draft.origin else None, "approval_id": draft.approval_id, "decision": draft.decision,
    }  # fmt: skip
    LEASES.claim(
        (scope.tenant_id, row.id), row.tries, owner=owner, until=now + int(draft.seconds * 1000), changes=changes
    )  # it was read in this write
    admit(row.id, draft.approval_id is not None and row.approval_id == draft.approval_id)
    return StartedCall(row.id, row.sent_key, now, row.tries + 1)


def _insert(scope: TenantScope, draft: Draft, owner: str, *, first: bool) -> StartedCall:
    call_id = ids.new("call")
    key = draft.key or call_id
    sent_key = key if first else f"{key}.{draft.digest[:12]}"
    now = clock.now_ms()
    scope.insert(
        CallRow, id=call_id, status="running", sent_key=sent_key, owner=owner, started_at=now, created_at=now,
        deadline_at=now + int(draft.seconds * 1000), tries=1, **_columns(scope, draft),
    )  # fmt: skip
    return StartedCall(call_id, sent_key, now)


def _columns(scope: TenantScope, draft: Draft) -> dict[str, Any]:
    origin = draft.origin
    return {
        "integration_id": draft.integration, "connector": draft.connector, "action": draft.action,
        "effect": draft.effect, "input": _if_storable(draft.input)[0], "output_kept": 1, "idempotency_key": draft.key,
        "request_digest": draft.digest, "actor": scope.actor, "request_id": scope.request_id,
        "execution_id": origin.execution_id if origin else None, "path": origin.path if origin else None,
        "iteration": origin.iteration if origin else None, "attempt": origin.attempt if origin else None,
        "host_call": origin.call if origin else None, "approval_id": draft.approval_id, "decision": draft.decision,
    }  # fmt: skip


def _if_storable(value: Any) -> tuple[Any, bool]:
    """The value and True, or None and False if it is too large to store."""
    fits = len(db.dump_json(value)) <= _MAX_STORED_BYTES
    return (value, True) if fits else (None, False)


def enqueue_call(scope: TenantScope, draft: Draft) -> tuple[str, bool]:
    """Inside a write: record a call to be made later; `store_pending` stores its input.

    Returns its id, and False if the same request was recorded before; IdempotencyMismatch for a different one.
    """
    rows = [] if draft.key is None else _rows_of_key(scope, draft)
    for row in rows:
        if row.request_digest == draft.digest:
            return row.id, False
    if rows:
        raise IdempotencyMismatch(Sentence("the key %(key)s was used for a different request; use a new key", key=repr(draft.key)))
    call_id = ids.new("call")
    key, now = draft.key or call_id, clock.now_ms()
    scope.insert(
        CallRow, id=call_id, status="queued", sent_key=key, owner="", tries=0, created_at=now,
        deadline_at=now + int(draft.seconds * 1000), **_columns(scope, draft),
    )  # fmt: skip
    return call_id, True


def record_decision(scope: TenantScope, call_id: str, draft: Draft) -> None:
    """Inside a write: store the policies' decision about a recorded call."""
    scope.update(CallRow, approval_id=draft.approval_id, decision=draft.decision).where(CallRow.id == call_id).execute()


def store_pending(scope: TenantScope, call_id: str, sealed: bytes) -> None:
    """Inside a write: store the sealed input of a queued call until it is made."""
    scope.update(CallRow, pending=sealed).where(CallRow.id == call_id).execute()


def claim_queued(scope: TenantScope, call_id: str, owner: str) -> tuple[CallRow, StartedCall] | None:
    """Claim a queued call for this process, and return its row from before; None if another worker was first."""

    def claim() -> tuple[CallRow, StartedCall] | None:
        row = scope.find(CallRow, id=call_id)
        if row is None or row.status != "queued":
            return None
        now = clock.now_ms()
        until = now + row.deadline_at - row.created_at
        if not LEASES.claim((scope.tenant_id, call_id), row.tries, owner=owner, until=until, changes={"started_at": now}):
            return None
        return row, StartedCall(call_id, row.sent_key, now, row.tries + 1)

    return db.write(claim)


def requeue(scope: TenantScope, row: CallRow) -> None:
    """Queue a claimed call again unchanged, because nothing was sent; `row` as `claim_queued` returned it."""
    changes = {"status": "queued", "owner": "", "started_at": None, "deadline_at": row.deadline_at, "tries": row.tries}
    with suppress(LeaseLost):  # it was closed, because it took too long
        db.write(lambda: LEASES.update((scope.tenant_id, row.id), row.tries + 1, changes))


def finish_call(scope: TenantScope, started: StartedCall, draft: Draft, completion: Completion) -> None:
    """Record the completion of a call, unless it has been sent again since; a late result replaces an unknown outcome."""
    output, is_stored = _if_storable(completion.output)
    changes = {
        "status": completion.status, "outcome": completion.outcome, "output": output, "output_kept": int(is_stored),
        "error": completion.error, "pending": None, "finished_at": clock.now_ms(), "traffic": completion.traffic,
    }  # fmt: skip

    def finish() -> None:
        LEASES.settle((scope.tenant_id, started.call_id), started.fence, changes)
        _report(scope, started, draft, completion)

    try:
        db.write(finish)
    except LeaseLost:
        log.warning("the call %s was sent again by another worker or deleted; this result is discarded", started.call_id)


def record_read(scope: TenantScope, draft: Draft, completion: Completion, began_at: int) -> str:
    """Record a call that changed nothing, after it has finished; returns its id."""
    call_id = ids.new("call")
    output, is_stored = _if_storable(completion.output)
    described = {**_columns(scope, draft), "output_kept": int(is_stored), "idempotency_key": None}

    def record() -> None:
        scope.insert(
            CallRow, id=call_id, status=completion.status, outcome=completion.outcome, output=output, error=completion.error,
            sent_key=draft.key or call_id, owner="", deadline_at=began_at, tries=1, created_at=began_at,
            started_at=began_at, finished_at=clock.now_ms(), traffic=completion.traffic, **described,
        )  # fmt: skip
        _report(scope, StartedCall(call_id, "", began_at), draft, completion)

    _write(scope, draft, record)
    return call_id


def _write(scope: TenantScope, draft: Draft, insert: Callable[[], T]) -> T:
    """Insert a call; NotFound if its integration was deleted meanwhile."""
    try:
        return db.write(insert)
    except IntegrityError:
        scope.get(IntegrationRow, id=draft.integration)
        raise


def _report(scope: TenantScope, started: StartedCall, draft: Draft, completion: Completion) -> None:
    """Inside a write: update counters, health and logs after a call."""
    tally.add(scope, "integration", f"{draft.integration}:{completion.status}", max(0, clock.now_ms() - started.began_at))
    _update_health(scope, draft, completion)
    lines = list(completion.lines)
    if completion.error is not None and completion.withdrawn:
        discovery.withhold(scope, draft.integration, draft.action, completion.error["message"])
    if completion.error is not None:
        fields = {"call_id": started.call_id, "class": completion.error["class"], "outcome": completion.outcome}
        message = f"{draft.action} of {draft.integration} failed: {completion.error['message']}"
        lines.append(make_line(scope, draft.origin, "error", message, fields))
    write_lines(scope, lines)


def _update_health(scope: TenantScope, draft: Draft, completion: Completion) -> None:
    """Inside a write: emit a webhook event once when an integration starts to fail; a refusal counts as working."""
    place = (scope.tenant_id, draft.integration)
    if completion.error is None:
        db.execute("UPDATE integration SET failed_in_row = 0 WHERE tenant_id = ? AND id = ? AND failed_in_row > 0", place)
        return
    error = completion.error
    if error["class"] not in _FAILURE_CLASSES:
        return
    sql = "UPDATE integration SET failed_in_row = failed_in_row + 1 WHERE tenant_id = ? AND id = ? RETURNING failed_in_row"
    if db.rows(sql, place) == [(FAILING_AFTER,)]:
        failure = {"class": error["class"], "message": error["message"]}
        described = {"integration": draft.integration, "connector": draft.connector, "action": draft.action, "error": failure}
        webhooks.emit(scope, "integration.failing", lambda: {**described, "failed_in_row": FAILING_AFTER})


def make_line(scope: TenantScope, origin: Origin | None, level: str, message: str, fields: Any) -> Line:
    """A log line of a call, with its execution and step."""
    execution_id, step = (origin.execution_id, origin.path or None) if origin else (None, None)
    return Line(
        clock.now_ms(), level, "integration", message, fields,
        execution_id=execution_id, step=step, request_id=scope.request_id or None,
    )  # fmt: skip


def _mark_unknown(scope: TenantScope, row: CallRow) -> None:
    lost = Lease((scope.tenant_id, row.id), row.tries, row.owner, row.deadline_at)
    LEASES.reclaim(lost, {"error": row.error or _INTERRUPTED})


def close_orphans(orphans: OrphanFinder) -> int:
    """Complete calls of every tenant whose process is gone: the outcome of a write is unknown, others may be repeated."""
    now = clock.now_ms()
    # A live process may still answer until the deadline; a dead one never will.
    lost = orphans.find(now - _GRACE_MS, _MOST_CLOSED)
    changes = {"error": _INTERRUPTED, "finished_at": now}
    return db.write(lambda: sum(LEASES.reclaim(each, changes) for each in lost)) if lost else 0
