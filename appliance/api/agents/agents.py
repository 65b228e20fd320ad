"""/api/v1/agents: agents and their versions."""

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
    """The most one run may use; `cost` is in the currency of the model's prices, `seconds` count time working, not waiting."""

    turns: int
    tool_calls: int
    tokens: int
    cost: float
    seconds: int


class DefinitionView(View):
    """An agent's definition: `model` is an LLM profile, `tools` lists tool names and `integration:operation`, and `policy`
    names the policies that must be active."""

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
    return AgentSummary(**_summary_fields(agent))


def agent_view(scope: TenantScope, agent: Agent) -> AgentView:
    latest = versions.get_version(scope, agent.id, agent.version)
    return AgentView(**_summary_fields(agent), definition=definition_view(latest.definition))


def _summary_fields(agent: Agent) -> dict[str, Any]:
    return {
        "id": agent.id, "name": agent.name, "version": agent.version, "digest": agent.digest,
        "created_at": clock.rfc3339(agent.created_at), "updated_at": clock.rfc3339(agent.updated_at),
    }  # fmt: skip


def version_view(version: Version) -> AgentVersionView:
    return AgentVersionView(
        version=version.version, digest=version.digest, definition=definition_view(version.definition),
        created_at=clock.rfc3339(version.created_at), created_by=version.created_by,
    )  # fmt: skip


@route("GET", "/agents", scope="agents.read", returns=AgentSummary, listed=True)
def list_agents(call: Call) -> Page[AgentSummary]:
    """List the tenant's agents."""
    return versions.list_agents(call.scope, call.query.page).map(agent_summary)


@route("POST", "/agents", scope="agents.write", body=DEFINITION, returns=AgentView, status=201)
def create_agent(call: Call) -> Answer:
    """Create an agent; an existing agent with this id is left unchanged.

    `tools` lists everything the agent may use: tool names and `integration:operation` (or `integration:*`). It reaches nothing
    beyond that list and the scopes of whoever starts a run; policies decide which calls need a person's approval.
    """
    agent_id = call.body.data.get("id")
    if not isinstance(agent_id, str):
        raise ValidationFailed("the definition needs an `id`, which is a text", pointer="/id")
    agent, _ = versions.save_agent(call.scope, parse_definition(agent_id, call.body.data), create_only=True)
    return Answer(agent_view(call.scope, agent), headers={"Location": f"/api/v1/agents/{agent.id}"}, etag=agent.digest)


@route("GET", "/agents/{agent_id}", scope="agents.read", returns=AgentView)
def get_agent(call: Call, agent_id: str) -> Answer:
    """Show an agent with the definition of its latest version."""
    agent = versions.get_agent(call.scope, agent_id)
    return Answer(agent_view(call.scope, agent), etag=agent.digest)


@route("PUT", "/agents/{agent_id}", scope="agents.write", body=DEFINITION, returns=AgentView, also={201: AgentView})
def put_agent(call: Call, agent_id: str) -> Answer:
    """Create an agent or its next version; an unchanged definition creates no new version.

    Runs in progress keep the version they started with. With If-Match, the agent must still have that ETag.
    """
    agent, is_new = versions.save_agent(call.scope, parse_definition(agent_id, call.body.data), if_match=call.if_match)
    headers = {"Location": f"/api/v1/agents/{agent.id}"} if is_new else {}
    return Answer(agent_view(call.scope, agent), status=201 if is_new else 200, headers=headers, etag=agent.digest)


@route("DELETE", "/agents/{agent_id}", scope="agents.write", returns=DeletedView)
def delete_agent(call: Call, agent_id: str) -> DeletedView:
    """Delete an agent with its versions and runs; refused while it has an unfinished run."""
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
