"""Cancel or retry several executions: first how many and what would happen, then the act and what came of it."""

from typing import get_args

from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core.errors import ApplianceError, InvalidRequest, ValidationFailed
from appliance.processes.executions import MOST, Action, ExecutionFilter, bulk

from .executions import list_page
from .searching import Search, read_search

MOST_CHOSEN = 500


@page("POST", "/executions/bulk", scope="processflow.execute")
def act_on_executions(visit: Visit) -> Answer:
    """What would be done to the executions that were chosen, or to all of the search; once that is confirmed, it is done."""
    visit.scope.require("processflow.read")
    search, problem = read_search({name: visit.asked.field(name) for name in visit.asked.form})
    try:
        action, is_all = _action(visit)
        wanted = _wanted(visit, search, is_all, problem)
    except ApplianceError as error:
        return list_page(visit, search, error)
    values = {
        "action": action, "is_all": is_all, "search": search, "chosen": list(wanted.ids or ()), "result": None, "most": MOST,
        "count": 0, "problem": None,
    }  # fmt: skip
    if not visit.asked.field("confirmed"):
        return Page("executions_bulk.html", {**values, "count": len(bulk.targets(visit.scope, wanted, action))})
    result = bulk.act(visit.services.processes, visit.scope, wanted, action, visit.asked.field("after")[:100])
    return Page("executions_bulk.html", {**values, "result": result})


def _action(visit: Visit) -> tuple[Action, bool]:
    """What to do, and whether to all that the search finds."""
    name, _, whole = visit.asked.field("action").partition("-")
    for known in get_args(Action):
        if name == known and whole in ("", "all"):
            return known, whole == "all"
    raise InvalidRequest("choose what to do: cancel or retry")


def _wanted(visit: Visit, search: Search, is_all: bool, problem: ApplianceError | None) -> ExecutionFilter:
    if problem is not None:
        raise problem
    if is_all:
        if not search.is_narrowed:
            raise ValidationFailed("narrow the list first, by a process or a state: everything at once is not to be had")
        return search.wanted
    ids = list(dict.fromkeys(visit.asked.form.get("id", [])))[:MOST_CHOSEN]
    if not ids:
        raise ValidationFailed("choose at least one execution of the list")
    return ExecutionFilter(ids=ids)
