"""Failures of executions, grouped by similarity, so that a thousand of the same kind are one entry."""

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import peewee

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.database.sentence_fields import dump_sentence
from appliance.core.errors import ApplianceError, ConcurrencyLimited, Draining, Overloaded, StorageFull
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope

from . import audit
from .models import FailureGroup, FailureOccurrence
from .retention import delete_older
from .storable import storable_text

State = Literal["open", "acknowledged", "resolved"]
MESSAGE_BYTES = 2 << 10
MAX_RETRIES = 200
BATCH_SIZE = 2_000
_OVERLOAD_ERRORS = (Draining, Overloaded, StorageFull)

# The parts that differ between occurrences of one failure; order matters: a quoted id is a quoted value.
_VARIABLE = re.compile(
    r"""(?<!\w)(?:'[^'\n]*'|"[^"\n]*"|`[^`\n]*`)(?!\w)  # quoted values
      | \b[a-z]{2,8}_[0-9A-Za-z]{16,}\b                 # ids of the appliance
      | \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b
      | \b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b        # hashes
      | [+-]?\d+(?:[.,:]\d+)*                           # numbers, times
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Failure:
    """One failed execution: where it failed (`step` may be empty), its class, code and message."""

    process_id: str
    execution_id: str
    step: str | None
    failure_class: str
    code: str
    message: str


class ExecutionRetrier(Protocol):
    """How failed executions are retried; implemented by the processes."""

    def find_retryable(self, scope: TenantScope, failed_ids: Sequence[str]) -> Collection[str]:
        """Those that still exist and have not been retried yet."""

    def retry(self, scope: TenantScope, failed_id: str, token: str) -> str:
        """Retry an execution; returns the new one's id, the same for the same token.  ApplianceError if it cannot be retried."""


@dataclass(frozen=True)
class BulkRetryResult:
    """The result of `retry_all`: failed execution -> its retry, refused ones with the reason, and how many remain.

    Those in `waiting` found no free place and count as remaining: the next call retries them.
    """

    retried: dict[str, str]
    refused: dict[str, str]
    remaining: int
    waiting: tuple[str, ...] = ()


def fingerprint(failure: Failure) -> str:
    """A hash that is equal for failures that differ only in numbers, ids and quoted values."""
    message = " ".join(_VARIABLE.sub("*", failure.message[:MESSAGE_BYTES]).casefold().split())
    parts = (failure.process_id, failure.step or "", failure.failure_class, failure.code, message)
    return hashlib.sha256("\x1f".join(parts).encode("utf8", "replace")).hexdigest()[:32]


def record_failure(scope: TenantScope, failure: Failure) -> str:
    """Inside a write: count the failure in its group and return the group's id; a resolved group is reopened.

    Recording the same execution again has no effect.
    """
    now = clock.now_ms()
    mark = fingerprint(failure)
    rows = db.rows(
        "SELECT f.id FROM failure f JOIN failure_occurrence o ON o.tenant_id = f.tenant_id AND o.failure_id = f.id "
        "WHERE f.tenant_id = ? AND f.fingerprint = ? AND o.execution_id = ?",
        (scope.tenant_id, mark, failure.execution_id),
    )
    if rows:
        return str(rows[0][0])
    message = dump_sentence(storable_text(failure.message, MESSAGE_BYTES))
    ((group_id, settled_at),) = db.rows(
        "INSERT INTO failure (tenant_id, id, fingerprint, process_id, step, failure_class, code, message, state, "
        "count, first_seen, last_seen, sample_execution_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', 1, ?, ?, ?) "
        "ON CONFLICT (tenant_id, fingerprint) DO UPDATE SET count = failure.count + 1, last_seen = excluded.last_seen, "
        "message = excluded.message, sample_execution_id = excluded.sample_execution_id, "
        "state = CASE failure.state WHEN 'resolved' THEN 'open' ELSE failure.state END RETURNING id, settled_at",
        (
            scope.tenant_id, ids.new("fail"), mark, failure.process_id, failure.step or "", failure.failure_class,
            failure.code, message, now, now, failure.execution_id,
        ),
    )  # fmt: skip
    # A failure after the group's resolution must have a later time, whatever the clock says.
    at = now if settled_at is None else max(now, settled_at + 1)
    scope.insert(FailureOccurrence, failure_id=group_id, execution_id=failure.execution_id, at=at)
    return str(group_id)


def list_failures(
    scope: TenantScope, page: PageRequest, *, state: State | None = None, process_id: str | None = None
) -> Page[FailureGroup]:
    """The tenant's groups, most recently seen first."""
    query = scope.select(FailureGroup)
    if state is not None:
        query = query.where(FailureGroup.state == state)
    if process_id is not None:
        query = query.where(FailureGroup.process_id == process_id)
    fields = {name: getattr(FailureGroup, name) for name in ("last_seen", "first_seen", "count", "id")}
    return paginate(query, page, fields, default="-last_seen")


def get_failure(scope: TenantScope, failure_id: str) -> FailureGroup:
    """One group; NotFound."""
    return scope.get(FailureGroup, id=failure_id)


def set_state(scope: TenantScope, failure_id: str, state: State) -> FailureGroup:
    """Acknowledge, resolve or reopen a group.

    Executions that failed before a resolution are no longer retried, unless that resolution is undone by another state.
    """

    def change() -> FailureGroup:
        row = scope.get(FailureGroup, id=failure_id)
        _change(scope, row, state, scope.actor)
        audit.record(scope, "failure.change", failure_id, audit.compare({"state": row.state}, {"state": state}))
        return scope.get(FailureGroup, id=failure_id)

    return db.write(change)


def _change(scope: TenantScope, row: FailureGroup, state: State, by: str) -> None:
    """Inside a write: change the state of a group."""
    changes = {"state": state, "changed_at": clock.now_ms(), "changed_by": by}
    if state == "resolved" and row.state != "resolved":
        changes |= {"settled_at": _latest(scope, row.id), "settled_before": row.settled_at}
    elif row.state == "resolved" and state != "resolved":
        changes["settled_at"] = row.settled_before
    scope.update(FailureGroup, **changes).where(FailureGroup.id == row.id).execute()


def record_recovered(
    scope: TenantScope, failed_ids: Sequence[str], left_failed: Callable[[TenantScope, Sequence[str]], Collection[str]]
) -> None:
    """Inside a write: record successful retries; a group with no failed execution left is resolved.

    `left_failed` returns those of the given executions that still exist and are failed.
    """
    mine = FailureOccurrence.execution_id.in_(failed_ids)
    touched = scope.select(FailureOccurrence, FailureOccurrence.failure_id).where(mine, FailureOccurrence.recovered_at.is_null())
    group_ids = sorted({row.failure_id for row in touched})
    scope.update(FailureOccurrence, recovered_at=clock.now_ms()).where(mine).execute()
    for group_id in group_ids:
        group = scope.get(FailureGroup, id=group_id)
        if group.state != "resolved" and not _has_failed(scope, group, left_failed):
            _change(scope, group, "resolved", "system")


def _has_failed(
    scope: TenantScope, group: FailureGroup, left_failed: Callable[[TenantScope, Sequence[str]], Collection[str]]
) -> bool:
    """Whether any execution of the group is still failed; deleted ones are marked, so that they are not checked again."""
    open_ones = scope.select(FailureOccurrence, FailureOccurrence.execution_id).where(
        FailureOccurrence.failure_id == group.id, FailureOccurrence.recovered_at.is_null(),
        FailureOccurrence.at > (group.settled_at or 0),
    ).limit(MAX_RETRIES)  # fmt: skip
    while execution_ids := [row.execution_id for row in open_ones.clone()]:
        if left_failed(scope, execution_ids):
            return True
        is_deleted = FailureOccurrence.execution_id.in_(execution_ids) & (FailureOccurrence.failure_id == group.id)
        scope.update(FailureOccurrence, recovered_at=clock.now_ms()).where(is_deleted).execute()
    return False


def _latest(scope: TenantScope, failure_id: str) -> int:
    latest = scope.select(FailureOccurrence, peewee.fn.MAX(FailureOccurrence.at)).where(FailureOccurrence.failure_id == failure_id)
    return max(clock.now_ms(), latest.scalar() or 0)


def retry_all(scope: TenantScope, failure_id: str, work: ExecutionRetrier) -> BulkRetryResult:
    """Retry the group's executions, oldest first, at most 200 at once; each is retried once.

    Skips executions that were retried otherwise or deleted, and those from before the group was resolved.  Refused ones are
    reported and not tried again, unless their process only lacks a free place; if the appliance itself is overloaded, that error
    is raised, and an interrupted call can be repeated.
    """
    chosen = _choose(scope, get_failure(scope, failure_id), work)
    retried: dict[str, str] = {}
    refused: dict[str, str] = {}
    waiting: list[str] = []
    for execution_id in chosen:
        try:
            retried[execution_id] = work.retry(scope, execution_id, f"{failure_id}/{execution_id}")
        except _OVERLOAD_ERRORS:
            raise
        except ConcurrencyLimited:
            waiting.append(execution_id)
        except ApplianceError as error:
            refused[execution_id] = error.message
    fields = {"retried": len(retried), "refused": len(refused), "waiting": len(waiting)}


    def close() -> None:
        _close(scope, failure_id, [*retried, *refused])
        audit.record(scope, "failure.retry", failure_id, fields)

    db.write(close)
    return BulkRetryResult(retried, refused, _pending(scope, get_failure(scope, failure_id)).count(), tuple(waiting))


def _pending(scope: TenantScope, group: FailureGroup) -> Any:
    return scope.select(FailureOccurrence).where(
        FailureOccurrence.failure_id == group.id, FailureOccurrence.retried_at.is_null(),
        FailureOccurrence.at > (group.settled_at or 0),
    )  # fmt: skip


def _choose(scope: TenantScope, group: FailureGroup, work: ExecutionRetrier) -> list[str]:
    """The oldest ones left to retry; earlier ones that are not are closed."""
    pending = _pending(scope, group).order_by(FailureOccurrence.at, FailureOccurrence.execution_id).limit(BATCH_SIZE)
    while execution_ids := [row.execution_id for row in pending.clone()]:
        left = work.find_retryable(scope, execution_ids)
        _close(scope, group.id, [each for each in execution_ids if each not in left])
        if chosen := [each for each in execution_ids if each in left]:
            return chosen[:MAX_RETRIES]
    return []


def _close(scope: TenantScope, failure_id: str, execution_ids: Sequence[str]) -> None:
    done = scope.update(FailureOccurrence, retried_at=clock.now_ms()).where(
        FailureOccurrence.failure_id == failure_id, FailureOccurrence.execution_id.in_(execution_ids)
    )
    db.write(done.execute)


def purge(before_ms: int) -> int:
    """Delete every tenant's failures from before `before_ms`, and groups last seen before it; returns the number of groups.

    A group that is still active keeps its total count, and its later executions.
    """
    delete_older("failure_occurrence", "failure_id, execution_id", "at", before_ms)
    return delete_older("failure", "id", "last_seen", before_ms)
