"""Pages of executions: the list with its search, one execution with its timeline, retry and cancel."""

import json
import secrets
from typing import Any
from urllib.parse import urlencode

from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Download, Page, Redirect, Visit, idempotency_token, page
from appliance.console.pages.processes import flow, outline
from appliance.core.database import db
from appliance.core.errors import ApplianceError, InvalidRequest, NotFound
from appliance.core.pages import PageRequest
from appliance.llm import NANO, used_by_execution
from appliance.monitor import LineFilter, logs
from appliance.processes import Execution
from appliance.processes.definitions import versions
from appliance.processes.engine import FINISHED
from appliance.processes.executions import EventAnswer, overview, recovery
from appliance.processes.executions import service as executions

from .excerpts import excerpt_of
from .execution_search import BYS, DURATIONS, SPANS, STATES, Search, parse_search
from .timeline import RunHistory, StepEntry, build_timeline
from .waits import list_waits

LOG_LINES, STEP_LINES = 100, 10
# How often a page refreshes its live part, in ms: while work is in progress, and while it only waits.
BUSY_MS, CALM_MS = 700, 3000
MANY_STEPS = 300
# A loop with up to FEW_RUNS runs shows them all; of a longer one, at most TROUBLED_RUNS runs that failed or wait are shown.
FEW_RUNS, TROUBLED_RUNS = 8, 40
# The budget of a page for inputs and outputs of steps in bytes, and the maximum and minimum for a single value.
VALUE_BYTES, MOST_OF_ONE, LEAST_OF_ONE = 60_000, 2048, 160
RELATED = 20


@page("GET", "/executions", scope="processflow.read")
def list_executions(visit: Visit) -> Answer:
    """The tenant's executions that match the search, newest first."""
    search, problem = parse_search(visit.request.args)
    return list_page(visit, search, problem)


def list_page(visit: Visit, search: Search, problem: ApplianceError | None = None) -> Page:
    result = executions.list_summaries(visit.scope, search.filters, visit.page())
    moving = any(row.status not in FINISHED for row in result.items) and not visit.request.args.get("cursor")
    values = {
        "rows": result.items, "next_cursor": result.next_cursor, "search": search, "args": search.args, "states": STATES,
        "spans": SPANS, "durations": DURATIONS, "bys": BYS, "problem": problem, "names": Names(visit),
        "processes": versions.list_names(visit.scope),
        "every": BUSY_MS * 2 if moving else 0, "live_url": search.address(part="live"), "query": urlencode(search.params),
    }  # fmt: skip
    template = "executions_live.html" if visit.request.is_fragment else "executions.html"
    return Page(template, values, problem.status if problem else 200)


@page("GET", "/executions/<execution_id>", scope="processflow.read")
def show_execution(visit: Visit, execution_id: str) -> Answer:
    """One execution: its progress, the input and output of every step, its error and the available actions."""
    return execution_page(visit, executions.get_execution(visit.scope, execution_id))


def execution_page(visit: Visit, row: Execution, problem: ApplianceError | None = None) -> Page:
    with db.snapshot():
        values = {**_details(visit, row), **_steps(visit, row)}
    values |= {"problem": problem, "token": secrets.token_urlsafe(16)}
    template = "execution_live.html" if visit.request.is_fragment else "execution.html"
    return Page(template, values, problem.status if problem else 200)


def _details(visit: Visit, row: Execution) -> dict[str, Any]:
    """Everything on the page except the steps: the execution itself, its waits, related executions and its log."""
    process = versions.get_process(visit.scope, row.process_id)
    cursor = visit.request.args.get("log") or None
    lines = logs.list_lines(visit.scope, LineFilter(execution_id=row.id), PageRequest(LOG_LINES, cursor, sort="at"))
    parent = executions.ExecutionFilter(id=row.parent or "")
    used = used_by_execution(visit.scope, row.id)
    has_failed = row.status in FINISHED and row.status != "succeeded"
    return {
        "row": row, "process": process, "newest": process.published_version, "names": Names(visit),
        "queue": executions.find_queue_place(row), "waits": list_waits(row) if row.status == "waiting" else [],
        "retries": executions.list_retries(visit.scope, row.id, RELATED), "lines": lines.items, "next_lines": lines.next_cursor,
        "recovered_by": recovery.find_success(visit.scope, row.id) if has_failed else None,
        "children": executions.list_children(visit.scope, row.id, RELATED), "log_cursor": cursor, "related": RELATED,
        "parents": executions.list_summaries(visit.scope, parent, PageRequest(1)).items if row.parent else [],
        "used": used, "cost": used.cost_nano / NANO,
    }  # fmt: skip


def _steps(visit: Visit, row: Execution) -> dict[str, Any]:
    """The steps as a timeline, and the interval at which the page refreshes them."""
    version = versions.get_version(visit.scope, row.process_id, row.version)
    counts = overview.count_steps(visit.scope, row)
    runs = overview.list_single_runs(visit.scope, row, counts)
    tries = overview.list_attempts(visit.scope, row) if any(run.attempt > 1 for run in runs.values()) else {}
    ran = RunHistory(counts, runs, overview.list_loop_runs(visit.scope, row, counts, FEW_RUNS, TROUBLED_RUNS), tries)
    timeline = build_timeline(row, ran, outline.build_outline(version.definition))
    total, is_open = sum(each.total for each in counts), row.status not in FINISHED
    is_calm = row.status in ("waiting", "scheduled") or total > MANY_STEPS
    excerpts = {entry.path: excerpt_of(version, entry.run.error, entry.step) for entry in timeline if entry.run}
    failed_at = excerpt_of(version, row.error, str((row.error or {}).get("step", "")))
    return {
        "timeline": timeline, "step_count": total, "is_open": is_open,
        "picture": flow.build_picture(version.definition, flow.states_of(counts), has_ended_well=row.status == "succeeded"),
        "every": 0 if not is_open else CALM_MS if is_calm else BUSY_MS, "live_url": f"/console/executions/{row.id}?part=live",
        "most": _share_of_values(timeline), "step_lines": STEP_LINES,
        # The excerpt at the top of the page is not repeated at its step.
        "excerpt": failed_at, "excerpts": {path: None if excerpt == failed_at else excerpt for path, excerpt in excerpts.items()},
    }  # fmt: skip


def _share_of_values(timeline: list[StepEntry]) -> int:
    """The number of bytes shown of each input and output, so that a page with many steps stays small.

    0 means that the values of successful steps are not shown.
    """
    value_count = 2 * sum(1 for entry in timeline if entry.run is not None)
    share = min(MOST_OF_ONE, VALUE_BYTES // max(1, value_count))
    return share if share >= LEAST_OF_ONE else 0


@page("GET", "/executions/<execution_id>/value", scope="processflow.read")
def download_value(visit: Visit, execution_id: str) -> Answer:
    """Download a complete input, output or error, of which the page shows only the beginning."""
    args = visit.request.args
    part = args.get("part", "")
    if part not in ("input", "output", "error"):
        raise InvalidRequest("`part` must be input, output or error")
    row = executions.get_execution(visit.scope, execution_id)
    path = args.get("path", "")
    if not path:
        return _file(f"{row.id}-{part}", getattr(row, part))
    run = overview.get_run(visit.scope, row, path, args.get("iteration", ""))
    return _file(f"{row.id}-{run.step}-{part}", getattr(run, part))


def _file(name: str, value: object) -> Download:
    return Download(f"{name}.json", json.dumps(value, ensure_ascii=False, indent=2).encode())


@page("POST", "/executions/<execution_id>/cancel", scope="processflow.execute")
def cancel_execution(visit: Visit, execution_id: str) -> Answer:
    """Cancel an execution."""
    try:
        visit.services.processes.cancel_execution(visit.scope, execution_id)
    except NotFound:
        raise
    except ApplianceError as error:
        return execution_page(visit, executions.get_execution(visit.scope, execution_id), error)
    return Redirect(f"/console/executions/{execution_id}")


@page("POST", "/executions/<execution_id>/retry", scope="processflow.execute")
def retry_execution(visit: Visit, execution_id: str) -> Answer:
    """Retry a finished execution as a new one; `from` is failed, start or a step."""
    start_from, published = visit.request.field("from") or "failed", visit.request.field("version") == "published"
    try:
        new = visit.services.processes.retry_execution(
            visit.scope, execution_id, start_from=start_from, published=published, token=idempotency_token(visit)
        )
    except NotFound:
        raise
    except ApplianceError as error:
        return execution_page(visit, executions.get_execution(visit.scope, execution_id), error)
    return Redirect(f"/console/executions/{new.id}")


@page("POST", "/executions/<execution_id>/resume", scope="processflow.execute")
def deliver_event(visit: Visit, execution_id: str) -> Answer:
    """Deliver the event that an execution waits for, with the entered data."""
    row = executions.get_execution(visit.scope, execution_id)
    try:
        data = _parse_event_data(visit.request.field("data").strip())
        answer = EventAnswer(visit.request.field("token")[:100], data)
        visit.services.processes.resume_execution(visit.scope, execution_id, row.process_id, answer)
    except ApplianceError as error:
        return execution_page(visit, executions.get_execution(visit.scope, execution_id), error)
    return Redirect(f"/console/executions/{execution_id}")


def _parse_event_data(text: str) -> Any:
    """Parse the data of an event; None for an empty text."""
    try:
        return json.loads(text, parse_constant=_refuse_constant) if text else None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the event's data must be JSON, such as {\"paid\": true}; leave it empty for none") from error


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not valid JSON")
