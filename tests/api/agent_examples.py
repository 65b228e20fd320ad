"""Requests about agents and their runs."""

import threading
from collections.abc import Callable

from appliance.agents import RunRequest, runs
from appliance.core.database import db
from tests.api.example import Example
from tests.api.resources import Resources, fresh


def definition(name: str) -> dict[str, object]:
    return {"id": name, "name": "Triage", "model": "default", "instructions": "Sort it.", "tools": ["query_entities"]}


def make_agent(tenant: Resources) -> str:
    """A new agent."""
    name = fresh("agent")
    tenant.ask("PUT", f"/agents/{name}", definition(name))
    return name


def _agent(tenant: Resources) -> str:
    return tenant.once("agent", lambda: make_agent(tenant))


def _run(tenant: Resources) -> dict[str, str]:
    """A failed run: its agent uses a model that does not exist."""
    agent = _agent(tenant)

    def make() -> str:
        run_id = str(tenant.ask("POST", f"/agents/{agent}/runs", {"input": "Sort it."})["run_id"])
        pause = threading.Event()
        while tenant.ask("GET", f"/agents/{agent}/runs/{run_id}")["status"] != "failed":
            pause.wait(0.05)
        return run_id

    return {"agent_id": agent, "run_id": tenant.once("run", make)}


def _waiting_run(tenant: Resources) -> dict[str, str]:
    """A waiting run that nothing resumes."""
    agent = make_agent(tenant)

    def insert() -> str:
        run, _ = runs.insert_run(tenant.scope, agent, RunRequest("Sort it."))
        db.execute("UPDATE agent_run SET status = 'waiting' WHERE id = ?", (run.id,))
        return run.id

    return {"agent_id": agent, "run_id": db.write(insert)}


AGENTS: dict[str, Callable[[Resources], Example]] = {
    "list_agents": lambda _: Example(),
    "create_agent": lambda _: Example(body=definition(fresh("made"))),
    "get_agent": lambda tenant: Example({"agent_id": _agent(tenant)}),
    "put_agent": lambda _: Example({"agent_id": (name := fresh("put"))}, definition(name)),
    "delete_agent": lambda tenant: Example({"agent_id": make_agent(tenant)}),
    "list_agent_versions": lambda tenant: Example({"agent_id": _agent(tenant)}),
    "start_run": lambda tenant: Example({"agent_id": _agent(tenant)}, {"input": "Sort it."}),
    "list_runs": lambda tenant: Example({"agent_id": _agent(tenant)}),
    "get_run": lambda tenant: Example(_run(tenant)),
    "list_trace": lambda tenant: Example(_run(tenant)),
    "follow_run": lambda tenant: Example(_run(tenant)),
    "cancel_run": lambda tenant: Example(_waiting_run(tenant)),
    "get_agent_version": lambda tenant: Example({"agent_id": _agent(tenant), "version": "1"}),
}
