"""Failures of executions, grouped by what they have in common, so that a thousand of one kind are one line to read."""

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

from .models import FailureGroup, FailureOccurrence
from .retention import delete_older
from .storable import storable_text

State = Literal["open", "acknowledged", "resolved"]
MESSAGE_BYTES = 2 << 10
RETRIES_AT_ONCE = 200
LOOKED_AT_ONCE = 2_000
_LATER = (Draining, Overloaded, StorageFull)

# What differs between two occurrences of one failure; the order matters, a quoted id is a quoted value.
_VARIABLE = re.compile(
    r"""(?<!\w)(?:'[^'\n]*'|"[^"\n]*"|`[^`\n]*`)(?!\w)  # quoted values
      | \b[a-z]{2,8}_[0-9A-Za-z]{16,}\b                 # our ids
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


class FailedWork(Protocol):
    """How what failed is done again; the processes know."""

    def left_to_retry(self, scope: TenantScope, failed_ids: Sequence[str]) -> Collection[str]:
        """Those of them that are still there and that nobody has retried yet."""

    def retry(self, scope: TenantScope, failed_id: str, token: str) -> str:
        """The id of the execution that retries it, the same for the same token; an ApplianceError when none can."""


@dataclass(frozen=True)
class RetryOutcome:
    """What `retry_all` did: failed execution -> the one that retries it, refusals with the reason, how many remain.

    `waiting` found no free place and are among those that remain: they are asked again by the next call.
    """

    retried: dict[str, str]
    refused: dict[str, str]
    remaining: int
    waiting: tuple[str, ...] = ()


def fingerprint(failure: Failure) -> str:
    """The same for two failures that differ in numbers, ids and quoted values only."""
    message = " ".join(_VARIABLE.sub("*", failure.message[:MESSAGE_BYTES]).casefold().split())
    parts = (failure.process_id, failure.step or "", failure.failure_class, failure.code, message)
    return hashlib.sha256("\x1f".join(parts).encode("utf8", "replace")).hexdigest()[:32]


def record_failure(scope: TenantScope, failure: Failure) -> str:
    """Inside a write: count the failure in its group and answer the group's id; a resolved group opens again.

    Recording the same execution twice counts once.
    """
    now = clock.now_ms()
    mark = fingerprint(failure)
    found = db.rows(
        "SELECT f.id FROM failure f JOIN failure_occurrence o ON o.tenant_id = f.tenant_id AND o.failure_id = f.id "
        "WHERE f.tenant_id = ? AND f.fingerprint = ? AND o.execution_id = ?",
        (scope.tenant_id, mark, failure.execution_id),
    )
    if found:
        return str(found[0][0])
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
    # What fails after a group was resolved is later than that, whatever the clock says.
    at = now if settled_at is None else max(now, settled_at + 1)
    scope.insert(FailureOccurrence, failure_id=group_id, execution_id=failure.execution_id, at=at)
    return str(group_id)


def list_failures(
    scope: TenantScope, page: PageRequest, *, state: State | None = None, process_id: str | None = None
) -> Page[FailureGroup]:
    """The tenant's groups, the one seen last first."""
    query = scope.select(FailureGroup)
    if state is not None:
        query = query.where(FailureGroup.state == state)
    if process_id is not None:
        query = query.where(FailureGroup.process_id == process_id)
    fields = {name: getattr(FailureGroup, name) for name in ("last_seen", "first_seen", "count", "id")}
    return paginate(query, page, fields, default="-last_seen")


def get_failure(scope: TenantScope, failure_id: str) -> FailureGroup:
    """One group; NotFound otherwise."""
    return scope.get(FailureGroup, id=failure_id)


def set_state(scope: TenantScope, failure_id: str, state: State) -> FailureGroup:
    """Acknowledge, resolve or re-open a group.

    What failed before it was resolved is not retried any more, until the same resolution is taken back by another state.
    """

    def change() -> FailureGroup:
        _change(scope, scope.get(FailureGroup, id=failure_id), state, scope.actor)
        return scope.get(FailureGroup, id=failure_id)

    return db.write(change)


def _change(scope: TenantScope, row: FailureGroup, state: State, by: str) -> None:
    """Inside a write."""
    changes = {"state": state, "changed_at": clock.now_ms(), "changed_by": by}
    if state == "resolved" and row.state != "resolved":
        changes |= {"settled_at": _latest(scope, row.id), "settled_before": row.settled_at}
    elif row.state == "resolved" and state != "resolved":
        changes["settled_at"] = row.settled_before
    scope.update(FailureGroup, **changes).where(FailureGroup.id == row.id).execute()


def note_recovered(
    scope: TenantScope, failed_ids: Sequence[str], left_failed: Callable[[TenantScope, Sequence[str]], Collection[str]]
) -> None:
    """Inside a write: retries of these went well; a group of which nothing is left failed resolves itself.

    `left_failed` answers which of some executions are still there and have failed.
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
    """Whether anything of the group is not made good yet; what is there no more is noted, and never asked for again."""
    open_ones = scope.select(FailureOccurrence, FailureOccurrence.execution_id).where(
        FailureOccurrence.failure_id == group.id, FailureOccurrence.recovered_at.is_null(),
        FailureOccurrence.at > (group.settled_at or 0),
    ).limit(RETRIES_AT_ONCE)  # fmt: skip
    while found := [row.execution_id for row in open_ones.clone()]:
        if left_failed(scope, found):
            return True
        gone = FailureOccurrence.execution_id.in_(found) & (FailureOccurrence.failure_id == group.id)
        scope.update(FailureOccurrence, recovered_at=clock.now_ms()).where(gone).execute()
    return False


def _latest(scope: TenantScope, failure_id: str) -> int:
    latest = scope.select(FailureOccurrence, peewee.fn.MAX(FailureOccurrence.at)).where(FailureOccurrence.failure_id == failure_id)
    return max(clock.now_ms(), latest.scalar() or 0)


def retry_all(scope: TenantScope, failure_id: str, work: FailedWork) -> RetryOutcome:
    """Retry the group's executions, oldest first, at most 200 at once; each is retried from here once.

    What has been retried in another way, or is deleted by now, is passed over, and so is what failed before the group was
    resolved.  What is refused is reported and not asked again, unless its process only has no free place now; when the
    appliance can do nothing now, that is raised, and a call cut short can be repeated.
    """
    chosen = _choose(scope, get_failure(scope, failure_id), work)
    retried: dict[str, str] = {}
    refused: dict[str, str] = {}
    waiting: list[str] = []
    for execution_id in chosen:
        try:
            retried[execution_id] = work.retry(scope, execution_id, f"{failure_id}/{execution_id}")
        except _LATER:
            raise
        except ConcurrencyLimited:
            waiting.append(execution_id)
        except ApplianceError as error:
            refused[execution_id] = error.message
    _close(scope, failure_id, [*retried, *refused])
    return RetryOutcome(retried, refused, _pending(scope, get_failure(scope, failure_id)).count(), tuple(waiting))


def _pending(scope: TenantScope, group: FailureGroup) -> Any:
    return scope.select(FailureOccurrence).where(
        FailureOccurrence.failure_id == group.id, FailureOccurrence.retried_at.is_null(),
        FailureOccurrence.at > (group.settled_at or 0),
    )  # fmt: skip


def _choose(scope: TenantScope, group: FailureGroup, work: FailedWork) -> list[str]:
    """The oldest that are left to retry; those before them that are not are closed."""
    pending = _pending(scope, group).order_by(FailureOccurrence.at, FailureOccurrence.execution_id).limit(LOOKED_AT_ONCE)
    while found := [row.execution_id for row in pending.clone()]:
        left = work.left_to_retry(scope, found)
        _close(scope, group.id, [each for each in found if each not in left])
        if chosen := [each for each in found if each in left]:
            return chosen[:RETRIES_AT_ONCE]
    return []


def _close(scope: TenantScope, failure_id: str, execution_ids: Sequence[str]) -> None:
    done = scope.update(FailureOccurrence, retried_at=clock.now_ms()).where(
        FailureOccurrence.failure_id == failure_id, FailureOccurrence.execution_id.in_(execution_ids)
    )
    db.write(done.execute)


def purge(before_ms: int) -> int:
    """Delete every tenant's failures from before `before_ms`, and the groups last seen before it; answers how many groups.

    A group that is seen again and again keeps its count, and of its executions the later ones.
    """
    delete_older("failure_occurrence", "failure_id, execution_id", "at", before_ms)
    return delete_older("failure", "id", "last_seen", before_ms)
