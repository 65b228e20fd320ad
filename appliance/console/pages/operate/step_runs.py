"""Pages of step runs: all runs of a step in a loop, and one run with its input, output and log."""

from urllib.parse import urlencode

from appliance.console.frame.routing import PAGE_ROWS, Answer, Page, Visit, page
from appliance.core.errors import InvalidRequest, NotFound
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.monitor import LineFilter, logs
from appliance.processes import Execution
from appliance.processes.definitions import versions
from appliance.processes.executions import RunFilter, overview
from appliance.processes.executions import service as executions

from .excerpts import excerpt_of

STATES = ("failed", "running", "waiting", "retrying", "succeeded", "skipped", "cancelled")
LOG_LINES = 100


@page("GET", "/executions/<execution_id>/runs", scope="processflow.read")
def list_runs(visit: Visit, execution_id: str) -> Answer:
    """The runs of one step by loop item; with `item`, that run."""
    row = executions.get_execution(visit.scope, execution_id)
    path, item = visit.request.args.get("path", ""), visit.request.args.get("item")
    if item is not None:
        return _run_page(visit, row, path, item)
    count = next((each for each in overview.count_steps(visit.scope, row) if each.path == path), None)
    if count is None:
        raise NotFound("there is no such step in this execution")
    if not count.is_loop:
        return _run_page(visit, row, path, "")
    state = visit.request.args.get("state", "")
    if state and state not in STATES:
        raise InvalidRequest(Sentence("%(state)s is not a state of a step; choose one from the list", state=repr(state[:40])))
    filters = RunFilter((state,) if state else (), visit.request.args.get("cursor"), PAGE_ROWS)
    result = overview.list_runs(visit.scope, row, path, filters)
    values = {
        "row": row, "process": versions.get_process(visit.scope, row.process_id), "count": count, "runs": result.items,
        "next_cursor": result.next_cursor, "state": state, "states": [each for each in STATES if count.by_status.get(each)],
        "query": urlencode({"path": path, **({"state": state} if state else {})}),
    }  # fmt: skip
    return Page("step_runs.html", values)


def _run_page(visit: Visit, row: Execution, path: str, item: str) -> Page:
    run = overview.get_run(visit.scope, row, path, item)
    version = versions.get_version(visit.scope, row.process_id, row.version)
    tries = overview.list_attempts(visit.scope, row) if run.attempt > 1 else {}
    # Log lines name their step but not the loop item, so those written by the step during this run are shown.
    end = None if run.finished_at is None else run.finished_at + 1
    filters = LineFilter(execution_id=row.id, since=run.started_at, until=end)
    result = logs.list_lines(visit.scope, filters, PageRequest(LOG_LINES, sort="at"))
    values = {
        "row": row, "run": run, "process": versions.get_process(visit.scope, row.process_id),
        "excerpt": excerpt_of(version, run.error, run.step), "tries": tries.get((path, item), ()),
        "lines": [line for line in result.items if line.step == run.step], "more_lines": result.next_cursor is not None,
    }  # fmt: skip
    return Page("step_run.html", values)
