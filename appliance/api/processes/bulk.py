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

    process_id: Annotated[str | None, Field(description="Only executions of the process with this slug.")] = None
    status: Annotated[Status | None, Field(description="Only executions with this status.")] = None
    label: Annotated[str | None, Field(description="Only executions with exactly this label.")] = None
    failure_class: Annotated[FailureClass | None, Field(description="Only executions that failed for this kind of reason.")] = None
    since: Annotated[str | None, Field(description="Only executions created at or after this time; RFC 3339.")] = None
    until: Annotated[str | None, Field(description="Only executions created before this time; RFC 3339.")] = None
    q: Annotated[str | None, Field(min_length=1, max_length=500, description=(
        "A value of the input, such as `10248`, or a path and its value, such as `order.number=10248`; whole values of up to 200 "
        "characters."
    ))] = None
    version: Annotated[int | None, Field(ge=1, le=10**9, description="Only executions of this version of the process.")] = None
    text: Annotated[str | None, Field(min_length=1, max_length=MAX_TEXT, description=(
        "An execution's id, a part of its label, an error code or a value of its input; at most 200 characters."
    ))] = None
    failed_step: Annotated[
        str | None, Field(min_length=1, max_length=200, description="Only executions that failed at the step with this id.")
    ] = None
    started_by: Annotated[StartedBy | None, Field(description=(
        "Only executions started by a person, an API key, a trigger, a WebApp's visitor, an agent's run or another execution."
    ))] = None
    ids: Annotated[
        list[str] | None, Field(min_length=1, max_length=500, description="Only these executions, 1 to 500 ids such as `exe_…`.")
    ] = None


class Bulk(Body):
    """An action on all executions that match a filter."""

    filter: Annotated[BulkFilter, Field(description="Which executions to act on.")]
    action: Annotated[Literal["cancel", "retry"], Field(description=(
        "`cancel` ends executions that are not finished, `retry` starts those again that ended without success."
    ))]
    after: Annotated[str, Field(max_length=100, description=(
        "Continue after this execution: the `next` of the previous answer. Empty starts at the oldest."
    ))] = ""


class RefusalView(View):
    """An execution on which the action could not be performed."""

    execution_id: Annotated[str, Field(description="The execution that was not changed; `exe_…`.")]
    code: Annotated[str, Field(description="The stable error code, as a request for this one execution would get it.")]
    message: Annotated[str, Field(description="What is wrong and what to do next.")]


class BulkView(View):
    """`matched` executions were found, and `done` of them cancelled or retried; `refused` could not be retried.

    `refusals` lists the first fifty. If `next` is present, there are more: repeat the call with `after` set to it.
    """

    matched: Annotated[int, Field(description="How many executions this request found, at most 500.")]
    done: Annotated[int, Field(description="How many of them were cancelled or retried.")]
    refused: Annotated[int, Field(description="How many of them could not be cancelled or retried.")]
    next: Annotated[str | None, Field(description="Send this as `after` to continue. Absent if there are no more.")] = None
    refusals: Annotated[list[RefusalView], Field(description="The first 50 refusals, with their reasons.")]


@route("POST", "/executions/bulk", scope="processflow.execute", body=Bulk, returns=BulkView, atomic=False)
def act_on_executions(call: Call) -> BulkView:
    """Cancel or retry all executions matching a filter.

    Each request handles the oldest 500. `cancel` applies to unfinished executions; one in progress is `cancelling` until its
    step stops. `retry` applies to executions that failed, were cancelled, timed out or expired, from the step that failed, and
    skips those retried before.
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
