"""Operations on executions: start, read, list, cancel, and resume with an event."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from peewee import IntegrityError

from appliance.core.database import db
from appliance.core.errors import (
    Conflict,
    DefinitionInvalid,
    ExecutionFinished,
    NotFound,
    PolicyDenied,
    ValidationFailed,
)
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit, delete_in_chunks
from appliance.processes.definitions.compiled import CompiledVersion
from appliance.processes.engine import completion, store, suspension
from appliance.processes.engine.decide import Key
from appliance.processes.models import EventRow, Execution, JournalRow, StepRunRow
from appliance.processes.scheduling.slots import SLOT
from appliance.processes.startable import find_startable

from .search import (
    ExecutionFilter,
    ExecutionSummary,
    find_newest,
    list_children,
    list_executions,
    list_retries,
    list_summaries,
    matching_query,
)

__all__ = [
    "EventRow",
    "Execution",
    "ExecutionFilter",
    "ExecutionSummary",
    "JournalRow",
    "StepRunRow",
    "find_newest",
    "list_children",
    "list_executions",
    "list_retries",
    "list_summaries",
    "matching_query",
]  # fmt: skip
PRIORITIES = range(-10, 11)
MAX_LABEL = 200
PURGE_CHUNK = 100  # An execution has many rows and index entries; a write of so many takes some 25 ms.


@dataclass(frozen=True)
class QueuePlace:
    """The position of a queued execution: `ahead` executions start before it."""

    position: int
    ahead: int
    enqueued_at: int


def check_input(scope: TenantScope, compiled: CompiledVersion, value: Any) -> None:
    """ValidationFailed with everything in the input that violates the process's schema.  May block, so call it before a write."""
    if compiled.refusal:
        raise DefinitionInvalid(
            Sentence(
                "the input's JSON Schema cannot be used: %(refusal)s; fix `input` and publish the process again",
                refusal=compiled.refusal,
            ),
            pointer="/input",
        )
    if compiled.input_schema is None:
        return
    problems = compiled.input_schema.problems(value, namespace=scope.tenant_id)
    if problems:
        first = f"{problems[0].pointer or '/'}: {problems[0].message}"
        raise ValidationFailed(Sentence("the input does not match the schema, %(first)s", first=first), details=problems[:100])


def resolve_version(scope: TenantScope, process_id: str, requested: int | None) -> int:
    """The requested version, or the published one; NotFound, NotPublished."""
    return find_startable(scope, process_id, requested).version


def explain_refusal(scope: TenantScope, process_id: str, version: int, error: IntegrityError) -> NoReturn:
    """Raise NotFound if an execution could not be inserted because its process was deleted meanwhile, else the error itself."""
    resolve_version(scope, process_id, version)
    raise error


def newest_created_at() -> int | None:
    """When the newest execution of any tenant was created; None if there is none."""
    ((at,),) = db.rows("SELECT MAX(created_at) FROM execution")
    return None if at is None else int(at)


def last_created(scope: TenantScope, process_id: str) -> int | None:
    """When the newest stored execution of a process was created; None if there is none."""
    ((at,),) = db.rows(
        "SELECT MAX(created_at) FROM execution WHERE tenant_id = ? AND process_id = ?", (scope.tenant_id, process_id)
    )
    return None if at is None else int(at)


def get_execution(scope: TenantScope, execution_id: str, process_id: str | None = None) -> Execution:
    """One execution (of this process, if given); NotFound, also for one of a process that the scope's key cannot reach."""
    criteria = {"id": execution_id} if process_id is None else {"process_id": process_id, "id": execution_id}
    row = scope.get(Execution, **criteria)
    if not scope.can_reach("process", row.process_id):
        raise NotFound(Sentence("there is no %(label)s %(wanted)s here", label=Execution.label, wanted=repr(execution_id[:80])))
    return row


def find_starter(scope: TenantScope, execution_id: str) -> str | None:
    """The actor that started an execution; None if there is no such execution."""
    rows = db.rows("SELECT actor FROM execution WHERE tenant_id = ? AND id = ?", (scope.tenant_id, execution_id))
    return str(rows[0][0]) if rows else None


def find_started(scope: TenantScope, token: str) -> Execution:
    """The execution that a request with this token started; NotFound if it has been deleted."""
    row: Execution | None = scope.find(Execution, idempotency=token)
    if row is None:
        raise NotFound("the execution that this request started has been deleted after its retention period")
    return row


def find_queue_place(execution: Execution) -> QueuePlace | None:
    """The position of an execution in its queue; None if it is not queued.

    Each tenant has its own queue; executions that wait for a slot or for a paused process have the queue of that slot or
    process.
    """
    if execution.status != "queued":
        return None
    where, mine = "tenant_id = ?", [execution.tenant_id]
    if execution.wait_reason is None:
        where += " AND wait_reason IS NULL"
    else:
        where += " AND process_id = ? AND wait_reason = ?"
        mine += [execution.process_id, execution.wait_reason]
        if execution.wait_reason == SLOT:
            where += " AND slot = ?"
            mine.append(execution.slot)
    ((ahead,),) = db.rows(
        f"SELECT count(*) FROM execution WHERE {where} AND status = 'queued' AND (rank < ? OR (rank = ? AND id < ?))",  # noqa: S608
        (*mine, execution.rank, execution.rank, execution.id),
    )
    return QueuePlace(ahead + 1, ahead, execution.enqueued_at)


def count_by_version(scope: TenantScope, process_id: str, most: int) -> list[tuple[int, int, int]]:
    """(version, executions, failed executions) of the newest `most` executions of a process."""
    return [
        (int(version), int(total), int(failed))
        for version, total, failed in db.rows(
            "SELECT version, count(*), sum(CASE WHEN status IN ('failed', 'timed_out') THEN 1 ELSE 0 END) "
            "FROM (SELECT version, status FROM execution WHERE tenant_id = ? AND process_id = ? ORDER BY created_at DESC LIMIT ?) "
            "AS newest GROUP BY version",
            (scope.tenant_id, process_id, most),
        )
    ]


def list_steps(scope: TenantScope, execution: Execution) -> list[StepRunRow]:
    """The step runs of an execution in the order in which they started."""
    query = scope.select(StepRunRow).where(StepRunRow.execution_id == execution.id)
    return list(query.order_by(StepRunRow.started_at, StepRunRow.path, StepRunRow.iteration))


def page_steps(scope: TenantScope, execution: Execution, page: PageRequest) -> Page[StepRunRow]:
    """The same, a page at a time: a for_each can have thousands."""
    query = scope.select(StepRunRow).where(StepRunRow.execution_id == execution.id)
    fields = {"started_at": StepRunRow.started_at, "path": StepRunRow.path, "iteration": StepRunRow.iteration}
    return paginate(query, page, fields, default="started_at,path,iteration", tie="iteration")


def list_journal(scope: TenantScope, execution: Execution, page: PageRequest, key: Key | None = None) -> Page[JournalRow]:
    """The host calls of an execution (of one step run) with their closing lines, oldest first."""
    query = scope.select(JournalRow).where(JournalRow.execution_id == execution.id)
    if key is not None:
        query = query.where((JournalRow.path == key[0]) & (JournalRow.iteration == key[1]))
    fields = {
        "at": JournalRow.at,
        "path": JournalRow.path,
        "iteration": JournalRow.iteration,
        "attempt": JournalRow.attempt,
        "position": JournalRow.position,
        "call": JournalRow.call,
    }
    return paginate(query, page, fields, default="at,path,iteration,attempt,position,call", tie="call")


def events_after(scope: TenantScope, execution_id: str, after: int) -> list[EventRow]:
    """The events of an execution after the event `after`, in order."""
    query = scope.select(EventRow).where((EventRow.execution_id == execution_id) & (EventRow.id > after))
    return list(query.order_by(EventRow.id).limit(500))


def change_label(scope: TenantScope, execution_id: str, process_id: str, label: str | None) -> Execution:
    """Change or remove the label of an execution; its own expressions and code keep the original one."""
    if label is not None and not 1 <= len(label) <= MAX_LABEL:
        raise ValidationFailed(Sentence("label must have 1 to %(max_label)s characters", max_label=MAX_LABEL), pointer="/label")

    def change() -> Execution:
        row = get_execution(scope, execution_id, process_id)
        first = (row.label_text or "") if row.first_label is None else row.first_label
        scope.update(Execution, label_text=label, first_label=first).where(Execution.id == row.id).execute()
        audit.record(scope, "execution.change", row.id, audit.compare({"label": row.label_text}, {"label": label}))
        return get_execution(scope, execution_id)

    return db.write(change)


def cancel_rows(scope: TenantScope, execution_id: str, process_id: str | None) -> Execution:
    """Inside a write: cancel an idle execution at once, or ask its runner to stop; ExecutionFinished if it has finished."""
    row = get_execution(scope, execution_id, process_id)
    if row.status in store.FINISHED:
        raise ExecutionFinished(
            Sentence("the execution is %(status)s already", status=row.status), extra={"execution_status": row.status}
        )
    completion.cancel(scope, row)
    audit.record(scope, "execution.cancel", execution_id, {"process_id": row.process_id, "status": row.status})
    return get_execution(scope, execution_id)


@dataclass(frozen=True)
class EventAnswer:
    """The event for a waiting execution: the `token` it waits under, and the event's data."""

    token: str
    input: Any = None


def answer_event(scope: TenantScope, execution_id: str, process_id: str, answer: EventAnswer) -> Execution:
    """Inside a write: deliver an event to the execution that waits for it.

    NotFound if the execution does not wait under this token, Conflict if the event was already delivered, ExecutionFinished
    if the execution has finished, PolicyDenied for requests that only a person may decide.
    """
    row = get_execution(scope, execution_id, process_id)
    if row.status in store.FINISHED:
        raise ExecutionFinished(
            Sentence("the execution is %(status)s already", status=row.status), extra={"execution_status": row.status}
        )
    pending = suspension.find_call(scope, execution_id, answer.token)
    if pending is not None and pending.kind in ("approval", "input", "model"):
        raise PolicyDenied("only a person can decide this; open the request in the console")
    if pending is None or pending.kind != "event":
        raise NotFound("the execution is not waiting under this token; `waiting_for` lists what it is waiting for")
    if not suspension.answer_call(scope, answer.token, True, answer.input):
        raise Conflict("this event has already been delivered")
    audit.record(scope, "execution.resume", execution_id, {"process_id": row.process_id})
    return get_execution(scope, execution_id)


def purge(before_ms: int) -> int:
    """Delete all executions that finished before `before_ms`, with everything that belongs to them; answers how many."""
    return delete_in_chunks(partial(_purge_some, before_ms))


def _purge_some(before_ms: int, most: int = PURGE_CHUNK) -> int:
    rows = db.rows("SELECT tenant_id, id FROM execution WHERE finished_at < ? ORDER BY finished_at LIMIT ?", (before_ms, most))
    for tenant_id, execution_id in rows:
        db.execute("DELETE FROM execution WHERE tenant_id = ? AND id = ?", (tenant_id, execution_id))
    return len(rows)
