"""/api/v1/agents: what an agent is, version by version."""

from typing import Any

from appliance.agents import Agent, Definition, Version, parse_definition, versions
from appliance.api.frame.routing import Answer, Call, Json, View, route
from appliance.api.processes.processes import version_number
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.core.pages import Page
from appliance.core.scope import TenantScope

DEFINITION = Json("document", "The definition of the agent; JSON or YAML.")


class BudgetView(View):
    """What one run may use at most; `cost` is in the currency of the model's prices, `seconds` are of working, not of waiting."""

    turns: int
    tool_calls: int
    tokens: int
    cost: float
    seconds: int


class DefinitionView(View):
    """What an agent is: `model` an LLM profile, `tools` names of tools and `integration:operation`,
    `policy` what must be active."""

    id: str
    name: str
    description: str
    model: str
    instructions: str
    tools: list[str]
    skills: list[str]
    policy: list[str]
    budget: BudgetView
    output: dict[str, Any] | None = None


class AgentSummary(View):
    id: str
    name: str
    version: int
    digest: str
    created_at: str
    updated_at: str


class AgentView(AgentSummary):
    """An agent with the definition of its latest version, which new runs follow."""

    definition: DefinitionView


class AgentVersionView(View):
    version: int
    digest: str
    definition: DefinitionView
    created_at: str
    created_by: str


def definition_view(definition: Definition) -> DefinitionView:
    return DefinitionView(**{"description": "", **definition.document()})


def agent_summary(agent: Agent) -> AgentSummary:
    return AgentSummary(**_facts(agent))


def agent_view(scope: TenantScope, agent: Agent) -> AgentView:
    latest = versions.get_version(scope, agent.id, agent.version)
    return AgentView(**_facts(agent), definition=definition_view(latest.definition))


def _facts(agent: Agent) -> dict[str, Any]:
    return {
        "id": agent.id, "name": agent.name, "version": agent.version, "digest": agent.digest,
        "created_at": clock.rfc3339(agent.created_at), "updated_at": clock.rfc3339(agent.updated_at),
    }  # fmt: skip


def version_view(found: Version) -> AgentVersionView:
    return AgentVersionView(
        version=found.version, digest=found.digest, definition=definition_view(found.definition),
        created_at=clock.rfc3339(found.created_at), created_by=found.created_by,
    )  # fmt: skip


@route("GET", "/agents", scope="agents.read", returns=AgentSummary, listed=True)
def list_agents(call: Call) -> Page[AgentSummary]:
    """List the tenant's agents."""
    return versions.list_agents(call.scope, call.query.page).map(agent_summary)


@route("POST", "/agents", scope="agents.write", body=DEFINITION, returns=AgentView, status=201)
def create_agent(call: Call) -> Answer:
    """Create an agent; one that exists is not touched.

    `tools` lists all it may use: names of tools, and `integration:operation` (or `integration:*`). Beyond that list, and beyond
    the scopes of whoever starts a run, it reaches nothing; what of it needs a person's approval say the policies.
    """
    agent_id = call.body.data.get("id")
    if not isinstance(agent_id, str):
        raise ValidationFailed("the definition needs an id", pointer="/id")
    agent, _ = versions.save_agent(call.scope, parse_definition(agent_id, call.body.data), create_only=True)
    return Answer(agent_view(call.scope, agent), headers={"Location": f"/api/v1/agents/{agent.id}"}, etag=agent.digest)


@route("GET", "/agents/{agent_id}", scope="agents.read", returns=AgentView)
def get_agent(call: Call, agent_id: str) -> Answer:
    """Show an agent with the definition of its latest version."""
    agent = versions.get_agent(call.scope, agent_id)
    return Answer(agent_view(call.scope, agent), etag=agent.digest)


@route("PUT", "/agents/{agent_id}", scope="agents.write", body=DEFINITION, returns=AgentView, also={201: AgentView})
def put_agent(call: Call, agent_id: str) -> Answer:
    """Create an agent or make its next version; one that says the same makes none.

    Runs under way go on with the version they began with. With If-Match the agent must still be the one of that ETag.
    """
    agent, is_new = versions.save_agent(call.scope, parse_definition(agent_id, call.body.data), if_match=call.if_match)
    headers = {"Location": f"/api/v1/agents/{agent.id}"} if is_new else {}
    return Answer(agent_view(call.scope, agent), status=201 if is_new else 200, headers=headers, etag=agent.digest)


@route("DELETE", "/agents/{agent_id}", scope="agents.write", returns=DeletedView)
def delete_agent(call: Call, agent_id: str) -> DeletedView:
    """Delete an agent with its versions and runs; refused while a run of it is open."""
    versions.delete_agent(call.scope, agent_id)
    return DeletedView(deleted=agent_id)


@route("GET", "/agents/{agent_id}/versions", scope="agents.read", returns=AgentVersionView, listed=True)
def list_agent_versions(call: Call, agent_id: str) -> Page[AgentVersionView]:
    """List the versions of an agent, newest first."""
    return versions.list_versions(call.scope, agent_id, call.query.page).map(version_view)


@route("GET", "/agents/{agent_id}/versions/{version}", scope="agents.read", returns=AgentVersionView)
def get_agent_version(call: Call, agent_id: str, version: str) -> AgentVersionView:
    """Show one version of an agent."""
    return version_view(versions.get_version(call.scope, agent_id, version_number(version)))
