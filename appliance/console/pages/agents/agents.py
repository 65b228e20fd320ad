"""Pages of agents: the list, one agent with its definition, versions and runs, and the live trace of a run."""

import secrets

from appliance.agents import FINISHED, Entry, RunRequest, runs, versions
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.console.pages.operate.executions import BUSY_MS, CALM_MS
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.texts import mark

_VERSIONS = 20
_ENTRY_TITLES = {
    "asked": mark("Model called"), "answered": mark("Model responded"), "unanswered": mark("Model did not respond"),
    "called": mark("Tool called"), "dispatched": mark("Call started"), "returned": mark("Tool responded"),
    "waiting": mark("Decision requested"), "resumed": mark("Decision made"), "ended": mark("Ended"),
}  # fmt: skip


@page("GET", "/agents", scope="agents.read")
def list_agents(visit: Visit) -> Answer:
    """The tenant's agents, by id."""
    result = versions.list_agents(visit.scope, visit.page())
    return Page("agents.html", {"agents": result.items, "next_cursor": result.next_cursor})


@page("GET", "/agents/<agent_id>", scope="agents.read")
def show_agent(visit: Visit, agent_id: str) -> Answer:
    """One agent: its definition, versions and latest runs."""
    return _agent_page(visit, agent_id)


def _agent_page(visit: Visit, agent_id: str, task: str = "", problem: ApplianceError | None = None) -> Page:
    latest = versions.get_version(visit.scope, agent_id)
    result = runs.list_runs(visit.scope, agent_id, visit.page())
    values = {
        "agent": latest.definition, "version": latest, "definition": latest.definition.document(), "runs": result.items,
        "next_cursor": result.next_cursor, "versions": versions.list_versions(visit.scope, agent_id, PageRequest(_VERSIONS)).items,
        "names": Names(visit), "token": secrets.token_urlsafe(16), "task": task, "problem": problem,
    }  # fmt: skip
    return Page("agent.html", values, problem.status if problem else 200)


@page("POST", "/agents/<agent_id>/runs", scope="agents.run")
def start_run(visit: Visit, agent_id: str) -> Answer:
    """Start a run with the entered task; submitting the same form twice starts one run."""
    task = visit.request.field("input").strip()
    try:
        if not task:
            raise ValidationFailed("describe the task for the agent", pointer="/input")
        token = f"{visit.scope.actor}/{visit.request.field('token')}"
        run = visit.services.agents.runs.start_run(visit.scope, agent_id, RunRequest(task, token=token))
    except NotFound:
        raise
    except ApplianceError as error:
        return _agent_page(visit, agent_id, task, error)
    return Redirect(f"/console/agents/{agent_id}/runs/{run.id}")


@page("GET", "/agents/<agent_id>/runs/<run_id>", scope="agents.read")
def show_run(visit: Visit, agent_id: str, run_id: str) -> Answer:
    """One run: its status, its result and every step."""
    return _run_page(visit, agent_id, run_id)


def _run_page(visit: Visit, agent_id: str, run_id: str, problem: ApplianceError | None = None) -> Page:
    run = runs.get_run(visit.scope, agent_id, run_id)
    trace = runs.list_entries(visit.scope, agent_id, run_id, PageRequest(MAX_LIMIT))
    is_open = run.status not in FINISHED
    values = {
        "run": run, "agent": versions.get_agent(visit.scope, agent_id), "trace": [_row(entry) for entry in trace.items],
        "more": trace.next_cursor is not None, "is_open": is_open, "names": Names(visit), "problem": problem,
        "every": 0 if not is_open else CALM_MS if run.status == "waiting" else BUSY_MS,
        "live_url": f"/console/agents/{agent_id}/runs/{run_id}?part=live",
    }  # fmt: skip
    template = "agent_run_live.html" if visit.request.is_fragment else "agent_run.html"
    return Page(template, values, problem.status if problem else 200)


def _row(entry: Entry) -> dict[str, object]:
    """A trace entry for the page: its title, the tool or status it is about, and whether it is an error."""
    data = dict(entry.data)
    is_wrong = entry.kind == "unanswered" or data.get("ok") is False or data.get("status") == "failed"
    about = data.get("tool") or data.get("status") or ""
    return {"entry": entry, "title": _ENTRY_TITLES[entry.kind], "about": about, "is_wrong": is_wrong}


@page("POST", "/agents/<agent_id>/runs/<run_id>/cancel", scope="agents.run")
def cancel_run(visit: Visit, agent_id: str, run_id: str) -> Answer:
    """Cancel a run."""
    try:
        runs.cancel_run(visit.scope, agent_id, run_id)
    except NotFound:
        raise
    except ApplianceError as error:
        return _run_page(visit, agent_id, run_id, error)
    return Redirect(f"/console/agents/{agent_id}/runs/{run_id}")
