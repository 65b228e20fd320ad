"""Pages of executions: the list, one execution with its timeline, retry and cancel."""

import json
import secrets
from urllib.parse import urlencode

from appliance.core.errors import ApplianceError, InvalidRequest, NotFound
from appliance.core.pages import PageRequest
from appliance.monitor import logs
from appliance.monitor.logs import LineFilter
from appliance.processes import executions, versions
from appliance.processes.executions import Execution, ExecutionFilter
from appliance.processes.store import FINISHED

from . import outline
from .people import Names
from .routing import Answer, Download, Page, Redirect, Visit, page, token_of
from .timeline import make_timeline
from .waiting import waits_of

STATES = ("running", "queued", "waiting", "scheduled", "succeeded", "failed", "cancelled", "timed_out", "expired")
LOG_LINES = 300
# How often (ms) a page asks for its changing part: while something moves, and while it waits for a time to come.
BUSY_MS, CALM_MS = 700, 3000
MANY_STEPS = 300


@page("GET", "/executions", scope="processflow.read")
def list_executions(visit: Visit) -> Answer:
    """The tenant's executions, newest first, by state and process."""
    args = visit.asked.args
    state, process_id = args.get("state", ""), args.get("process", "")
    if state and state not in STATES:
        raise InvalidRequest(f"{state[:40]!r} is not a state; choose one of the list")
    wanted = ExecutionFilter(process_id or None, state or None)
    found = executions.list_executions(visit.scope, wanted, visit.page())
    names = versions.list_processes(visit.scope, PageRequest(100, sort="name")).items
    moving = any(row.status not in FINISHED for row in found.items) and not args.get("cursor")
    kept = {name: args[name] for name in ("state", "process") if args.get(name)}
    values = {
        "rows": found.items, "next_cursor": found.next_cursor, "state": state, "process_id": process_id, "states": STATES,
        "processes": names, "every": BUSY_MS * 2 if moving else 0, "live_url": _live_url("/console/executions", kept),
        "kept": urlencode(kept),
    }  # fmt: skip
    return Page("executions_live.html" if visit.asked.is_fragment else "executions.html", values)


def _live_url(path: str, kept: dict[str, str]) -> str:
    return f"{path}?{urlencode({**kept, 'part': 'live'})}"


@page("GET", "/executions/<execution_id>", scope="processflow.read")
def show_execution(visit: Visit, execution_id: str) -> Answer:
    """One execution: where it is, what every step got and gave, what went wrong and what to do next."""
    return execution_page(visit, executions.get_execution(visit.scope, execution_id))


def execution_page(visit: Visit, row: Execution, problem: ApplianceError | None = None) -> Page:
    definition = versions.get_version(visit.scope, row.process_id, row.version).definition
    steps = executions.list_steps(visit.scope, row)
    lines = logs.list_lines(visit.scope, LineFilter(execution_id=row.id), PageRequest(LOG_LINES, sort="at"))
    process = versions.get_process(visit.scope, row.process_id)
    is_open = row.status not in FINISHED
    is_calm = row.status in ("waiting", "scheduled") or len(steps) > MANY_STEPS
    every = 0 if not is_open else CALM_MS if is_calm else BUSY_MS
    values = {
        "row": row, "process": process, "timeline": make_timeline(row, steps, outline.outline(definition)), "lines": lines.items,
        "more_lines": lines.next_cursor is not None, "is_open": is_open, "every": every, "problem": problem,
        "live_url": f"/console/executions/{row.id}?part=live", "queue": executions.queue_place(row),
        "names": Names(visit), "token": secrets.token_urlsafe(16), "step_count": len(steps), "newest": process.published_version,
        "waits": waits_of(row) if row.status == "waiting" else [],
    }  # fmt: skip
    template = "execution_live.html" if visit.asked.is_fragment else "execution.html"
    return Page(template, values, problem.status if problem else 200)


@page("GET", "/executions/<execution_id>/value", scope="processflow.read")
def download_value(visit: Visit, execution_id: str) -> Answer:
    """The whole of an input, output or error that a page shows the beginning of."""
    args = visit.asked.args
    part = args.get("part", "")
    if part not in ("input", "output", "error"):
        raise InvalidRequest("part is input, output or error")
    row = executions.get_execution(visit.scope, execution_id)
    path = args.get("path", "")
    if not path:
        return _file(f"{row.id}-{part}", getattr(row, part))
    for run in executions.list_steps(visit.scope, row):
        if (run.path, run.iteration) == (path, args.get("iteration", "")):
            return _file(f"{row.id}-{run.step}-{part}", getattr(run, part))
    raise NotFound("there is no such step in this execution")


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
    start_from, published = visit.asked.field("from") or "failed", visit.asked.field("version") == "published"
    try:
        new = visit.services.processes.retry_execution(
            visit.scope, execution_id, start_from=start_from, published=published, token=token_of(visit)
        )
    except NotFound:
        raise
    except ApplianceError as error:
        return execution_page(visit, executions.get_execution(visit.scope, execution_id), error)
    return Redirect(f"/console/executions/{new.id}")
