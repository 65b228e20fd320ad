"""The page of failures: groups of similar failures, to acknowledge, resolve and retry."""

from typing import get_args

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core.errors import InvalidRequest
from appliance.core.sentences import Sentence
from appliance.monitor import State, failures
from appliance.processes.executions import FailureRetries

STATES: tuple[State, ...] = get_args(State)


def _parse_state(text: str) -> State | None:
    for state in STATES:
        if state == text:
            return state
    if text and text != "all":
        raise InvalidRequest(Sentence("%(text)s is not a state of a failure; choose one from the list", text=repr(text[:40])))
    return None


@page("GET", "/failures", scope="logs.read")
def list_failures(visit: Visit) -> Answer:
    """Groups of failures, the latest first; only open ones unless another state is chosen."""
    return _failures_page(visit)


def _failures_page(visit: Visit, retry_result: failures.BulkRetryResult | None = None) -> Page:
    state = visit.request.args.get("state", "open")
    result = failures.list_failures(visit.scope, visit.page(), state=_parse_state(state))
    values = {
        "groups": result.items, "next_cursor": result.next_cursor, "state": state, "states": STATES, "outcome": retry_result,
        "names": Names(visit), "query": f"state={state}",
    }  # fmt: skip
    return Page("failures.html", values)


@page("POST", "/failures/<failure_id>/state", scope="processflow.execute")
def change_failure(visit: Visit, failure_id: str) -> Answer:
    """Acknowledge, resolve or reopen a group."""
    state = _parse_state(visit.request.field("state"))
    if state is None:
        raise InvalidRequest("choose an action: acknowledge, resolve or reopen")
    failures.set_state(visit.scope, failure_id, state)
    return Redirect("/console/failures")


@page("POST", "/failures/<failure_id>/retry", scope="processflow.execute")
def retry_failures(visit: Visit, failure_id: str) -> Answer:
    """Retry every execution of a group from its failed step, and show the result."""
    work = FailureRetries(visit.services.processes, published=visit.request.field("version") == "published")
    return _failures_page(visit, failures.retry_all(visit.scope, failure_id, work))
