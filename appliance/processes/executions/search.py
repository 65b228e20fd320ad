"""Searches executions by their fields, time, failure and text; answers whole rows or the summaries that lists show."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from peewee import SQL, fn

from appliance.core.database import db
from appliance.core.database.id_lists import is_listed
from appliance.core.errors import ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate, paginate_few
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.models import Execution

from . import input_values

StartedBy = Literal["user", "key", "trigger", "webapp", "run", "execution"]
"""Who started an execution: a person, a program, a trigger, a WebApp's visitor, an agent's run, another execution."""

MAX_TEXT = 200
MANY_MATCHES = 2_000
MANY_LABELS = 1_000
# The first different labels of a tenant, each found through the index on them.
_LABELS = """
WITH RECURSIVE known (label) AS (
    SELECT MIN(label) FROM execution WHERE tenant_id = ? AND label IS NOT NULL
    UNION ALL SELECT (SELECT MIN(label) FROM execution WHERE tenant_id = ? AND label > known.label AND label IS NOT NULL)
    FROM known WHERE known.label IS NOT NULL
)
"""
_ESCAPE = r"ESCAPE '\'"
_WILDCARD = re.compile(r"[\\%_]")
# Written into the SQL as literals: a partial index on some statuses is not used for a status passed as a parameter.
_STATES = frozenset({
    "scheduled", "queued", "running", "waiting", "cancelling", "succeeded", "failed", "cancelled", "timed_out", "expired",
})  # fmt: skip
_SUMMARY_COLUMNS = (
    Execution.id, Execution.process_id, Execution.version, Execution.status, Execution.wait_reason, Execution.failure_class,
    Execution.label_text, Execution.actor, Execution.created_at, Execution.started_at, Execution.finished_at, Execution.error,
)  # fmt: skip
_ORDER = {"created_at": Execution.created_at, "id": Execution.id}


@dataclass(frozen=True)
class ExecutionFilter:
    """Criteria for a list of executions; None means any.

    `search` has the syntax of `input_values.executions_with`.  `text` is an id, a part of a label, an error code or a value of
    the input.  `step` is the failed one; `took_ms` the minimum duration of finished executions; `ids` limits to these.
    """

    process_id: str | None = None
    status: str | None = None
    label: str | None = None
    failure_class: str | None = None
    since: int | None = None
    until: int | None = None
    id: str | None = None
    search: str | None = None
    version: int | None = None
    text: str | None = None
    step: str | None = None
    took_ms: int | None = None
    by: StartedBy | None = None
    ids: Sequence[str] | None = None


@dataclass(frozen=True)
class ExecutionSummary:
    """The summary of an execution for lists; `problem` is its error message."""

    id: str
    process_id: str
    version: int
    status: str
    wait_reason: str | None
    failure_class: str | None
    problem: str | None
    label: str | None
    actor: str
    created_at: int
    started_at: int | None
    finished_at: int | None


@dataclass(frozen=True)
class _Match:
    """A condition; `is_selective` if it lists the few executions that match."""

    condition: Any
    is_selective: bool


def matching_query(scope: TenantScope, criteria: ExecutionFilter, *columns: Any) -> Any:
    """The query for the filter; ValidationFailed for a text that cannot be searched for."""
    return _matching(scope, criteria, _search(scope, criteria), *columns)


def _matching(scope: TenantScope, criteria: ExecutionFilter, matches: Sequence[_Match], *columns: Any) -> Any:
    """The same, with what was searched for."""
    query = scope.narrow(scope.select(Execution, *columns), "process", Execution.process_id)
    equal = {
        Execution.process_id: criteria.process_id, Execution.label_text: criteria.label, Execution.id: criteria.id,
        Execution.failure_class: criteria.failure_class, Execution.version: criteria.version,
    }  # fmt: skip
    for column, value in equal.items():
        if value is not None:
            query = query.where(column == value)
    if criteria.status is not None:
        query = query.where(Execution.status == (SQL(f"'{criteria.status}'") if criteria.status in _STATES else criteria.status))
    if criteria.since is not None:
        query = query.where(Execution.created_at >= criteria.since)
    if criteria.until is not None:
        query = query.where(Execution.created_at < criteria.until)
    if criteria.ids is not None:
        query = query.where(Execution.id.in_(list(criteria.ids)))
    for match in matches:
        query = query.where(match.condition)
    return _add_conditions(scope, query, criteria)


def _add_conditions(scope: TenantScope, query: Any, criteria: ExecutionFilter) -> Any:
    """The same query with the conditions on failed step, duration and starter."""
    if criteria.step is not None:
        query = query.where(Execution.failed_step.is_null(False) & (Execution.failed_step == criteria.step))
    if criteria.took_ms is not None:
        query = query.where(_duration_condition(scope, criteria.took_ms))
    if criteria.by is not None:
        start = f"{criteria.by}:"
        of_kind = fn.SUBSTR(Execution.actor, SQL("1"), SQL("3")) == start[:3]  # as the index `execution_started_by` has it
        query = query.where(of_kind & (fn.SUBSTR(Execution.actor, 1, len(start)) == start))
    return query


def _duration_condition(scope: TenantScope, min_ms: int) -> Any:
    """The condition for finished executions of at least this duration.

    Few matches are read through their index.  With many, no index applies, for the reason in `_match`.
    """
    duration = Execution.finished_at - Execution.started_at
    condition = Execution.finished_at.is_null(False) & (duration >= min_ms)
    has_many = scope.select(Execution, SQL("1")).where(condition).limit(MANY_MATCHES).count() == MANY_MATCHES
    return fn.COALESCE(duration, -1) >= min_ms if has_many else condition


def _search(scope: TenantScope, criteria: ExecutionFilter) -> list[_Match]:
    """Look up the search and the text of the filter."""
    matches = []
    if criteria.search is not None:
        ids = _first_of(input_values.executions_with(scope, criteria.search))
        matches.append(_match(ids, input_values.has_value(scope, criteria.search, Execution.id)))
    if criteria.text:
        matches.append(_search_text(scope, criteria.text))
    return matches


def _first_of(ids: Any) -> list[str]:
    """As many ids of a query as tell whether they are many."""
    # Not as rows of the query: thousands of them take peewee as long as the database takes to find them.
    return [str(id_) for (id_,) in db.database.execute(ids.limit(MANY_MATCHES)).fetchall()]


def _match(ids: Sequence[str], condition: Any) -> _Match:
    """Few executions are listed by their ids.  With many, scanning from the newest finds enough of them soon, while sorting all
    of them would take longer; `condition` examines each row by itself, so that no index applies."""
    if len(ids) >= MANY_MATCHES:
        return _Match(condition, False)
    return _Match(is_listed("id", ids), True)


def _search_text(scope: TenantScope, text: str) -> _Match:
    """Executions with this id, error code or input value, or with this text in their label."""
    if len(text) > MAX_TEXT:
        message = Sentence("search for at most %(longest_text)s characters", longest_text=MAX_TEXT)
        raise ValidationFailed(message, pointer="/text")
    value = f"={text}"
    ids = scope.select(Execution, Execution.id)
    matching = [text, *_first_of(ids.where(_label_condition(scope, text)))]
    matching += _first_of(ids.where(Execution.failure_code.is_null(False) & (Execution.failure_code == text)))
    matching += _first_of(input_values.executions_with(scope, value))
    by_row = (
        fn.COALESCE(Execution.label_text, "").contains(text) | (fn.COALESCE(Execution.failure_code, "") == text)
        | (Execution.id == text) | input_values.has_value(scope, value, Execution.id)
    )  # fmt: skip
    return _match(matching, by_row)


def _label_condition(scope: TenantScope, text: str) -> Any:
    """The condition that a label has this text.  Few different labels are compared once each, and not for each execution."""
    escaped = _WILDCARD.sub(r"\\\g<0>", text)
    sql = f"{_LABELS} SELECT label, label {'LIKE' if db.is_sqlite() else 'ILIKE'} ? {_ESCAPE} FROM known LIMIT ?"  # noqa: S608
    labels = db.rows(sql, (scope.tenant_id, scope.tenant_id, f"%{escaped}%", MANY_LABELS))
    if len(labels) == MANY_LABELS:
        return Execution.label_text.is_null(False) & Execution.label_text.contains(text)
    return is_listed("label", [label for label, has_text in labels if has_text])


def list_executions(scope: TenantScope, criteria: ExecutionFilter, page: PageRequest) -> Page[Execution]:
    """Executions, newest first."""
    return _page(scope, criteria, page)


def list_summaries(scope: TenantScope, criteria: ExecutionFilter, page: PageRequest) -> Page[ExecutionSummary]:
    """The same as summaries, without input and output, which may be large."""
    return _page(scope, criteria, page, *_SUMMARY_COLUMNS).map(_to_summary)


def _page(scope: TenantScope, criteria: ExecutionFilter, page: PageRequest, *columns: Any) -> Page[Any]:
    matches = _search(scope, criteria)
    read_page = paginate_few if any(match.is_selective for match in matches) else paginate
    return read_page(_matching(scope, criteria, matches, *columns), page, _ORDER)


def _to_summary(row: Any) -> ExecutionSummary:
    problem = str(row.error.get("message", "")) if row.error else None
    return ExecutionSummary(
        id=row.id, process_id=row.process_id, version=row.version, status=row.status, wait_reason=row.wait_reason,
        failure_class=row.failure_class, problem=problem, label=row.label_text, actor=row.actor, created_at=row.created_at,
        started_at=row.started_at, finished_at=row.finished_at,
    )  # fmt: skip


def find_newest(scope: TenantScope, process_ids: Sequence[str]) -> dict[str, ExecutionSummary]:
    """The newest execution of each of these processes that has one."""
    if not process_ids:
        return {}
    places = ", ".join("?" * len(process_ids))
    rows = db.rows(
        "SELECT (SELECT e.id FROM execution e WHERE e.tenant_id = p.tenant_id AND e.process_id = p.id "  # noqa: S608 places only
        f"ORDER BY e.created_at DESC, e.id DESC LIMIT 1) FROM process p WHERE p.tenant_id = ? AND p.id IN ({places})",
        (scope.tenant_id, *process_ids),
    )
    return {row.process_id: row for row in _by_ids(scope, [str(each) for (each,) in rows if each is not None])}


def list_retries(scope: TenantScope, execution_id: str, most: int) -> Sequence[ExecutionSummary]:
    """The newest retries of an execution."""
    ids = scope.select(Execution, Execution.id).where(Execution.retry_of.is_null(False) & (Execution.retry_of == execution_id))
    return _newest(scope, ids, most)


def list_children(scope: TenantScope, execution_id: str, most: int) -> Sequence[ExecutionSummary]:
    """The newest executions that an execution started."""
    ids = scope.select(Execution, Execution.id).where(Execution.parent.is_null(False) & (Execution.parent == execution_id))
    return _newest(scope, ids, most)


def _newest(scope: TenantScope, ids: Any, most: int) -> Sequence[ExecutionSummary]:
    return _by_ids(scope, [row.id for row in ids.order_by(Execution.id.desc()).limit(most)])


def _by_ids(scope: TenantScope, ids: Sequence[str]) -> list[ExecutionSummary]:
    """Summaries by id, newest first.  Sorted here, because with ORDER BY the database would scan all executions in order."""
    rows = map(_to_summary, matching_query(scope, ExecutionFilter(ids=ids), *_SUMMARY_COLUMNS)) if ids else ()
    return sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)


def list_starters() -> tuple[StartedBy, ...]:
    """The possible starters of an execution."""
    return get_args(StartedBy)
