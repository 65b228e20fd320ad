"""/api/v1/executions/bulk: cancel or retry all executions that match a filter."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Body, Call, View, route
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.processes.executions import MAX_TEXT, ExecutionFilter, StartedBy, bulk

from .execution_views import Status
from .executions import FailureClass


class BulkFilter(Body):
    """The filter of the list of executions; at least one member is required."""

    process_id: str | None = None
    status: Status | None = None
    label: str | None = None
    failure_class: FailureClass | None = None
    since: str | None = None
    until: str | None = None
    q: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    version: Annotated[int, Field(ge=1, le=10**9)] | None = None
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)] | None = None
    failed_step: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    started_by: StartedBy | None = None
    ids: Annotated[list[str], Field(min_length=1, max_length=500)] | None = None


class Bulk(Body):
    filter: BulkFilter
    action: Literal["cancel", "retry"]
    after: Annotated[str, Field(max_length=100)] = ""


class RefusalView(View):
    execution_id: str
    code: str
    message: str


class BulkView(View):
    """`matched` executions were found, and `done` of them cancelled or retried; `refused` could not be retried.

    `refusals` lists the first fifty. If `next` is present, there are more: repeat the call with `after` set to it.
    """

    matched: int
    done: int
    refused: int
    next: str | None = None
    refusals: list[RefusalView]


@route("POST", "/executions/bulk", scope="processflow.execute", body=Bulk, returns=BulkView, atomic=False)
def act_on_executions(call: Call) -> BulkView:
    """Cancel or retry the executions that match a filter, 500 at a time, the oldest first.

    `cancel` applies to unfinished executions; one in progress is `cancelling` until its step stops. `retry` applies to
    executions that failed, were cancelled, timed out or expired, from the step that failed, and skips those retried before.
    """
    body: Bulk = call.body
    members = body.filter.model_dump(exclude_none=True)
    if not members:
        raise ValidationFailed("the filter is empty; send at least one member, such as `process_id` or `status`", pointer="/filter")
    since, until = (clock.parse_rfc3339(members[n], pointer=f"/filter/{n}") if n in members else None for n in ("since", "until"))
    filters = ExecutionFilter(
        members.get("process_id"), members.get("status"), members.get("label"), members.get("failure_class"), since, until,
        search=members.get("q"), version=members.get("version"), text=members.get("text"), step=members.get("failed_step"),
        by=members.get("started_by"), ids=members.get("ids"),
    )  # fmt: skip
    result = bulk.run_bulk(call.services.processes, call.scope, filters, body.action, body.after)
    refusals = [RefusalView(execution_id=each.execution_id, code=each.code, message=each.message) for each in result.refusals]
    return BulkView(matched=result.matched, done=result.done, refused=result.refused, next=result.next, refusals=refusals)
