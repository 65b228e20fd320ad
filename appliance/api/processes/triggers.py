"""/api/v1/processes/{process_id}/triggers: the triggers of a process and their firings."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import Call, View, route
from appliance.core import clock
from appliance.core.pages import Page
from appliance.processes.triggers import Firing, TriggerView
from appliance.processes.triggers import service as triggers


class FaultView(View):
    """Why an event started no execution."""

    code: Annotated[str, Field(description="The stable error code, such as `validation_failed`.")]
    failure_class: Annotated[str, Field(description="The kind of reason, such as `connector`, `validation` or `system`.")]
    message: Annotated[str, Field(description="What is wrong and what to do next.")]


class TriggerStateView(View):
    """One trigger of the published version.

    `due` lists the next times of a schedule, or the next poll of an integration; `failed_in_row` counts failures since the last
    execution it started. `resumes_at` is present when the appliance's clock was set back: due times before it have already
    passed once and are skipped, so that none runs twice.
    """

    id: Annotated[str, Field(description=(
        "Identifies the trigger in its process: the definition's `id`, else its kind with a number from the second on."
    ))]
    kind: Annotated[
        str, Field(description="What fires it: `schedule`, `webhook`, `integration`, `datapool`, `process` or `document`.")
    ]
    settings: Annotated[dict[str, Any], Field(description=(
        "The settings of the kind, as the definition has them with defaults filled in; durations in milliseconds."
    ))]
    paused: Annotated[bool, Field(description="Whether the process is paused, so that the trigger does not fire.")]
    path: Annotated[str | None, Field(description=(
        "The path on this host that receives the webhook, such as `/hooks/orders`. Absent for other kinds."
    ))] = None
    due: Annotated[list[str], Field(description=(
        "The next due times of a schedule, at most 3, or the next poll of an integration; RFC 3339, UTC. Empty for other kinds."
    ))]
    resumes_at: Annotated[str | None, Field(description=(
        "The first due time that runs again after the clock was set back; RFC 3339, UTC. Absent otherwise."
    ))] = None
    last_fired_at: Annotated[str | None, Field(description="When it last fired; RFC 3339, UTC. Absent if it never has.")] = None
    last_execution_id: Annotated[
        str | None, Field(description="The execution that it started last; `exe_…`. Absent if it has started none.")
    ] = None
    failed_in_row: Annotated[int, Field(description="How many times it has failed in a row; 0 after a success.")]
    last_error: Annotated[FaultView | None, Field(description="The reason of its last failure. Absent if there is none.")] = None
    last_error_at: Annotated[str | None, Field(description="When it last failed; RFC 3339, UTC. Absent if it has not.")] = None


class FiringView(View):
    """One event of a trigger: `pending` until its execution is recorded, then `started`; or `failed` with a reason, or
    `skipped`."""

    id: Annotated[str, Field(description="Identifies the event; `fir_…`.")]
    status: Annotated[Literal["pending", "started", "failed", "skipped"], Field(description=(
        "`pending` until its execution is recorded, then `started`; `failed` with an error, or `skipped` as the definition says."
    ))]
    key: Annotated[str, Field(description=(
        "Identifies the event at its source, such as a delivery id or a due time; the same key starts no second execution."
    ))]
    at: Annotated[str, Field(description="When the event was recorded; RFC 3339, UTC.")]
    due_at: Annotated[str | None, Field(description=(
        "The due time of a schedule that the event stands for; RFC 3339, UTC. Absent for other kinds."
    ))] = None
    execution_id: Annotated[
        str | None, Field(description="The execution that the event started; `exe_…`. Absent unless the status is `started`.")
    ] = None
    error: Annotated[FaultView | None, Field(description="Why the event started no execution. Absent unless it failed.")] = None


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
    """List the triggers of a process.

    Those of the published version, with next due times, last firing and last error.
    """
    return [trigger_view(view) for view in triggers.list_triggers(call.scope, process_id)]


@route("GET", "/processes/{process_id}/triggers/{trigger_id}/firings", scope="processflow.read", returns=FiringView, listed=True)
def list_firings(call: Call, process_id: str, trigger_id: str) -> Page[FiringView]:
    """List the events of a trigger.

    The newest come first, each with the execution it started or the reason why it started none.
    """
    return triggers.list_firings(call.scope, process_id, trigger_id, call.query.page).map(firing_view)
