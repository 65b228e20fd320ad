"""Requests about agents and their runs."""

from collections.abc import Callable

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


AGENTS: dict[str, Callable[[Resources], Example]] = {
    "list_agents": lambda _: Example(),
    "create_agent": lambda _: Example(body=definition(fresh("made"))),
    "get_agent": lambda tenant: Example({"agent_id": _agent(tenant)}),
    "put_agent": lambda _: Example({"agent_id": (name := fresh("put"))}, definition(name)),
    "delete_agent": lambda tenant: Example({"agent_id": make_agent(tenant)}),
    "list_agent_versions": lambda tenant: Example({"agent_id": _agent(tenant)}),
    "get_agent_version": lambda tenant: Example({"agent_id": _agent(tenant), "version": "1"}),
}
