"""/api/v1/processes/{process_id}/triggers: the triggers of a process and their firings."""

from typing import Any, Literal

from appliance.api.frame.routing import Call, View, route
from appliance.core import clock
from appliance.core.pages import Page
from appliance.processes.triggers import Firing, TriggerView
from appliance.processes.triggers import service as triggers


class FaultView(View):
    """Why an event started no execution."""

    code: str
    failure_class: str
    message: str


class TriggerStateView(View):
    """One trigger of the published version.

    `due` lists the next times of a schedule, or the next poll of an integration; `failed_in_row` counts failures since the last
    execution it started. `resumes_at` is present when the appliance's clock was set back: due times before it have already
    passed once and are skipped, so that none runs twice.
    """

    id: str
    kind: str
    settings: dict[str, Any]
    paused: bool
    path: str | None = None
    due: list[str]
    resumes_at: str | None = None
    last_fired_at: str | None = None
    last_execution_id: str | None = None
    failed_in_row: int
    last_error: FaultView | None = None
    last_error_at: str | None = None


class FiringView(View):
    """One event of a trigger: `pending` until its execution is recorded, then `started`; or `failed` with a reason, or
    `skipped`."""

    id: str
    status: Literal["pending", "started", "failed", "skipped"]
    key: str
    at: str
    due_at: str | None = None
    execution_id: str | None = None
    error: FaultView | None = None


def _fault(error: Any) -> FaultView | None:
    if error is None:
        return None
    return FaultView(code=error["code"], failure_class=error["failure_class"], message=error["message"])


def trigger_view(view: TriggerView) -> TriggerStateView:
    row = view.row
    return TriggerStateView(
        id=row.trigger_id, kind=row.kind, settings=row.settings, paused=view.is_paused,
        path=f"/hooks/{row.settings['path']}" if row.kind == "webhook" else None, due=[clock.rfc3339(due) for due in view.due],
        resumes_at=clock.optional_rfc3339(view.resumes_at),
        last_fired_at=clock.optional_rfc3339(row.last_fired_at), last_execution_id=row.last_execution_id,
        failed_in_row=row.failed_in_row, last_error=_fault(row.last_error),
        last_error_at=clock.optional_rfc3339(row.last_error_at),
    )  # fmt: skip


def firing_view(row: Firing) -> FiringView:
    return FiringView(
        id=row.id, status=row.status, key=row.event_key, at=clock.rfc3339(row.at), due_at=clock.optional_rfc3339(row.due_at),
        execution_id=row.execution_id, error=_fault(row.error),
    )  # fmt: skip


@route("GET", "/processes/{process_id}/triggers", scope="processflow.read", returns=list[TriggerStateView])
def list_triggers(call: Call, process_id: str) -> list[TriggerStateView]:
    """List the triggers of the published version, with next due times, last firing and last error."""
    return [trigger_view(view) for view in triggers.list_triggers(call.scope, process_id)]


@route("GET", "/processes/{process_id}/triggers/{trigger_id}/firings", scope="processflow.read", returns=FiringView, listed=True)
def list_firings(call: Call, process_id: str, trigger_id: str) -> Page[FiringView]:
    """List the events of a trigger, newest first, each with the execution it started or the reason why it started none."""
    return triggers.list_firings(call.scope, process_id, trigger_id, call.query.page).map(firing_view)
