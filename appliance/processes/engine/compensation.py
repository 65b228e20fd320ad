"""Compensation: after an execution has failed or was cancelled, its steps are undone and its failure handler is started."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import peewee

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, StorageFull
from appliance.core.sentences import Sentence
from appliance.monitor import logs as log_lines
from appliance.processes.models import Execution

from . import completion, store
from .decide import is_undoable
from .job import Job
from .store import Claim
from .transitions import Transition, failed
from .waits import Child, Children

FAILED = ("failed", "timed_out")


def plan_compensation(job: Job, transition: Transition) -> dict[str, Any] | None:
    """What to record when the end is decided but steps have to be undone first; None if there is nothing to undo."""
    definition = job.compiled.definition
    if job.compensation is not None or transition.status not in (*FAILED, "cancelled") or not definition.compensation_paths:
        return None
    steps = job.compiled.steps
    has_undo = any(is_undoable(steps[run.path], run) for run in job.history.runs.values())
    if not has_undo and (transition.status == "cancelled" or not definition.on_failure.steps):
        return None
    return {"status": transition.status, "error": transition.error, "from_ms": job.active_ms()}


def write_start(claim: Claim, compensation: Mapping[str, Any], lease_until: int) -> None:
    """Inside a commit: record that the end is decided; only compensation runs from now on."""
    store.start_compensation(claim, lease_until, compensation)
    store.close_runs(claim.scope, claim.execution_id, "failed" if compensation["error"] else "cancelled")
    completion.withdraw_calls(claim.scope, claim.execution_id)
    store.add_event(claim.scope, claim.execution_id, "aftermath", {"status": compensation["status"]})


def fail(job: Job, error: dict[str, Any]) -> Transition:
    """The end of an execution with this error; a compensation that has begun is concluded with it."""
    return conclude(job, error) if job.compensation is not None else failed(error)


def conclude(job: Job, interruption: Mapping[str, Any] | None = None) -> Transition:
    """The decided end with the steps that were undone and those that were not; `interruption` is why compensation stopped early."""
    compensation = dict(job.compensation or {})
    undone, not_undone = [], []
    for each in job.history.compensations():
        place = {"step": each.run.step, "path": each.run.path}
        place |= {"iteration": each.run.iteration} if each.run.iteration else {}
        error = (each.failed.error if each.failed else interruption) or {}
        if each.finished:
            undone.append(place)
        else:
            not_undone.append({**place, "error": {name: error.get(name) for name in ("code", "message")}})
    record = {**compensation, "undone": undone, "not_undone": not_undone}
    return Transition(compensation["status"], error=compensation["error"], compensation=record)


@dataclass(frozen=True)
class Handler:
    """The execution that will handle a failure, or the error that prevented it."""

    process_id: str
    child: Child | None
    error: Mapping[str, str] | None = None


def prepare_handler(children: Children, job: Job, transition: Transition) -> Handler | None:
    """The handler named in the definition, if any; a failing handler is not handled by another one."""
    process_id, claim = job.compiled.definition.on_failure.process, job.claim
    if process_id is None or transition.status not in FAILED or claim.handles is not None:
        return None
    about = {**job.names("")["execution"], "status": transition.status}
    handler_input = {"error": transition.error, "execution": about, "input": claim.input}
    try:
        return Handler(process_id, children.prepare(claim, process_id, handler_input))
    except StorageFull:
        raise
    except ApplianceError as error:
        return Handler(process_id, None, {"code": error.code, "message": error.message})


def start_handler(claim: Claim, transition: Transition, handler: Handler | None) -> Transition:
    """Inside the commit of the end: start the handler, or record and log why it could not be started."""
    if handler is None:
        return transition
    record: dict[str, Any] = {"process_id": handler.process_id}
    error = handler.error
    if handler.child is not None:
        try:
            with db.savepoint():
                record["execution_id"] = handler.child.insert()["execution_id"]
                is_handler = Execution.id == record["execution_id"]
                claim.scope.update(Execution, handles=claim.execution_id).where(is_handler).execute()
        except peewee.IntegrityError:
            error = {
                "code": "not_found",
                "message": Sentence("the process %(process_id)s has been deleted", process_id=handler.process_id),
            }
    if error is not None:
        record["error"] = dict(error)
        message = f"{handler.process_id}, the failure handler of {claim.process_id}, was not started: {error['message']}"
        line = log_lines.Line(
            at=clock.now_ms(), level="error", source="process", message=message, fields={"code": error["code"]},
            execution_id=claim.execution_id, process_id=claim.process_id, request_id=claim.request_id,
        )  # fmt: skip
        log_lines.write_lines(claim.scope, [line])
    return replace(transition, compensation={**(transition.compensation or {}), "handler": record})
