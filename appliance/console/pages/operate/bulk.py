"""Cancel or retry several executions: first a preview with their number, then the action and its result."""

from typing import get_args

from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core.errors import ApplianceError, InvalidRequest, ValidationFailed
from appliance.processes.executions import MAX_EXECUTIONS, Action, ExecutionFilter, bulk

from .execution_search import Search, parse_search
from .executions import list_page

MOST_CHOSEN = 500


@page("POST", "/executions/bulk", scope="processflow.execute")
def act_on_executions(visit: Visit) -> Answer:
    """Preview the action on the selected executions or on all search results; perform it once it is confirmed."""
    visit.scope.require("processflow.read")
    search, problem = parse_search({name: visit.request.field(name) for name in visit.request.form})
    try:
        action, is_all = _action(visit)
        filters = _build_filter(visit, search, is_all, problem)
    except ApplianceError as error:
        return list_page(visit, search, error)
    values = {
        "action": action, "is_all": is_all, "search": search, "chosen": list(filters.ids or ()), "result": None,
        "most": MAX_EXECUTIONS, "count": 0, "problem": None,
    }  # fmt: skip
    if not visit.request.field("confirmed"):
        return Page("executions_bulk.html", {**values, "count": len(bulk.find_targets(visit.scope, filters, action))})
    result = bulk.run_bulk(visit.services.processes, visit.scope, filters, action, visit.request.field("after")[:100])
    return Page("executions_bulk.html", {**values, "result": result})


def _action(visit: Visit) -> tuple[Action, bool]:
    """The action, and whether it applies to all search results."""
    name, _, whole = visit.request.field("action").partition("-")
    for action in get_args(Action):
        if name == action and whole in ("", "all"):
            return action, whole == "all"
    raise InvalidRequest("choose an action: cancel or retry")


def _build_filter(visit: Visit, search: Search, is_all: bool, problem: ApplianceError | None) -> ExecutionFilter:
    if problem is not None:
        raise problem
    if is_all:
        if not search.is_narrowed:
            raise ValidationFailed("filter the list first, such as by process or state; this action cannot apply to all executions")
        return search.filters
    ids = list(dict.fromkeys(visit.request.form.get("id", [])))[:MOST_CHOSEN]
    if not ids:
        raise ValidationFailed("select at least one execution in the list")
    return ExecutionFilter(ids=ids)
