"""/api/v1/executions/bulk: cancel or retry what a filter names."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.routing import Body, Call, View, route
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.processes.executions import LONGEST_TEXT, By, ExecutionFilter, bulk

from .execution_views import Status
from .executions import FailureClass


class BulkFilter(Body):
    """What the list of executions is narrowed to; at least one member."""

    process_id: str | None = None
    status: Status | None = None
    label: str | None = None
    failure_class: FailureClass | None = None
    since: str | None = None
    until: str | None = None
    q: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    version: Annotated[int, Field(ge=1, le=10**9)] | None = None
    text: Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)] | None = None
    failed_step: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    started_by: By | None = None
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
    """`matched` executions were found, `done` of them cancelled or retried; `refused` could not be retried.

    `refusals` tells the first fifty. With a `next` there are more: ask again with `after` being that.
    """

    matched: int
    done: int
    refused: int
    next: str | None = None
    refusals: list[RefusalView]


@route("POST", "/executions/bulk", scope="processflow.execute", body=Bulk, returns=BulkView, atomic=False)
def act_on_executions(call: Call) -> BulkView:
    """Cancel or retry every execution that a filter names, the oldest 500 at a time.

    `cancel` takes those that are not finished; one in progress is `cancelling` until its step gives up. `retry` takes those
    that failed, were cancelled, took too long or expired, from where they failed, and passes over what was retried before.
    """
    body: Bulk = call.body
    given = body.filter.model_dump(exclude_none=True)
    if not given:
        raise ValidationFailed("name at least one member, such as process_id or status", pointer="/filter")
    since, until = (clock.parse_rfc3339(given[n], pointer=f"/filter/{n}") if n in given else None for n in ("since", "until"))
    wanted = ExecutionFilter(
        given.get("process_id"), given.get("status"), given.get("label"), given.get("failure_class"), since, until,
        search=given.get("q"), version=given.get("version"), text=given.get("text"), step=given.get("failed_step"),
        by=given.get("started_by"), ids=given.get("ids"),
    )  # fmt: skip
    found = bulk.act(call.services.processes, call.scope, wanted, body.action, body.after)
    refusals = [RefusalView(execution_id=each.execution_id, code=each.code, message=each.message) for each in found.refusals]
    return BulkView(matched=found.matched, done=found.done, refused=found.refused, next=found.next, refusals=refusals)
