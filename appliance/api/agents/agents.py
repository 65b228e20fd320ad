"""/api/v1/agents: agents and their versions."""

from typing import Annotated, Any

from pydantic import Field

from appliance.agents import Agent, Definition, Version, parse_definition, versions
from appliance.api.frame.routing import Answer, Call, Json, View, route
from appliance.api.processes.processes import version_number
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import AlreadyExists, Conflict, DefinitionInvalid, ValidationFailed
from appliance.core.pages import Page
from appliance.core.scope import TenantScope

DEFINITION = Json("document", "The definition of the agent; JSON or YAML.")
AgentDigest = Annotated[
    str, Field(description="A hash of the definition, 64 hexadecimal digits; formatting does not change it. The ETag of the agent.")
]


class BudgetView(View):
    """The most one run may use; `cost` is in the currency of the model's prices, `seconds` count time working, not waiting."""

    turns: Annotated[int, Field(description="The most model turns, 1 to 200; default 20.")]
    tool_calls: Annotated[int, Field(description="The most tool calls, up to 1,000; default 50.")]
    tokens: Annotated[int, Field(description="The most tokens, sent and received together, up to 10,000,000; default 200,000.")]
    cost: Annotated[
        float, Field(description="The most a run may cost, in the currency of the model's prices, up to 1,000; default 1.")
    ]
    seconds: Annotated[int, Field(description="The most seconds of working time, without waiting, up to 86,400; default 600.")]


class DefinitionView(View):
    """An agent's definition: `model` is an LLM profile, `tools` lists tool names and `integration:operation`, and `policy`
    names the policies that must be active."""

    id: Annotated[str, Field(description=(
        "Identifies the agent in the tenant: a slug of at most 63 lower-case letters, digits and single hyphens."
    ))]
    name: Annotated[str, Field(description="The name for people, at most 200 characters; by default the id.")]
    description: Annotated[str, Field(description="What the agent is for, at most 2,000 characters; may be empty.")]
    model: Annotated[str, Field(description="The LLM profile that answers; default `default`.")]
    instructions: Annotated[
        str, Field(description="What the agent has to do, 1 to 60,000 characters; the model receives them before the input.")
    ]
    tools: Annotated[list[str], Field(description=(
        "All that the agent may use, at most 100: tool names, `integration:operation` or `integration:*`."
    ))]
    skills: Annotated[list[str], Field(description="The skills that the agent may load, at most 100 names.")]
    policy: Annotated[list[str], Field(description=(
        "The policies that must be active for it to run, at most 100 names; all active ones apply, whether listed or not."
    ))]
    budget: Annotated[BudgetView, Field(description="What one run may use; a run that needs more fails with `budget_exceeded`.")]
    output: Annotated[dict[str, Any] | None, Field(description=(
        "The JSON Schema of the answer, an object of at most 32 KiB. Absent if the answer is a text."
    ))] = None


class AgentSummary(View):
    """An agent without its definition."""

    id: Annotated[str, Field(description=(
        "Identifies the agent in the tenant: a slug of at most 63 lower-case letters, digits and single hyphens."
    ))]
    name: Annotated[str, Field(description="The name for people; by default the id.")]
    version: Annotated[int, Field(description="The number of the latest version, which new runs follow.")]
    digest: AgentDigest
    created_at: Annotated[str, Field(description="When the agent was created; RFC 3339, UTC.")]
    updated_at: Annotated[str, Field(description="When its latest version was saved; RFC 3339, UTC.")]


class AgentView(AgentSummary):
    """An agent with the definition of its latest version, which new runs follow."""

    definition: Annotated[DefinitionView, Field(description="What the agent has to do and may use, as its latest version says.")]


class AgentVersionView(View):
    """An immutable version of an agent."""

    version: Annotated[int, Field(description="The number of the version: 1 for the first, then one more for each change.")]
    digest: Annotated[str, Field(description="A hash of the version's definition, 64 hexadecimal digits.")]
    definition: Annotated[DefinitionView, Field(description="The definition as it was saved, with defaults filled in.")]
    created_at: Annotated[str, Field(description="When the version was saved; RFC 3339, UTC.")]
    created_by: Annotated[str, Field(description="Who saved it: `user:<id>` or `key:<id>`.")]


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
    """List the tenant's agents.

    Sorted by `id`; `sort` also takes `name`, `created_at` and `updated_at`. An agent's definition is shown with the agent
    itself.
    """
    return versions.list_agents(call.scope, call.query.page).map(agent_summary)


@route(
    "POST", "/agents", scope="agents.write", body=DEFINITION, returns=AgentView, status=201,
    errors=(AlreadyExists, DefinitionInvalid),
)  # fmt: skip
def create_agent(call: Call) -> Answer:
    """Create an agent.

    An existing agent with this id is left unchanged. `tools` lists everything the agent may use: tool names and
    `integration:operation` (or `integration:*`). It reaches nothing beyond that list and the scopes of whoever starts a run;
    policies decide which calls need a person's approval.
    """
    agent_id = call.body.data.get("id")
    if not isinstance(agent_id, str):
        raise ValidationFailed("the definition needs an `id`, which is a text", pointer="/id")
    agent, _ = versions.save_agent(call.scope, parse_definition(agent_id, call.body.data), create_only=True)
    return Answer(agent_view(call.scope, agent), headers={"Location": f"/api/v1/agents/{agent.id}"}, etag=agent.digest)


@route("GET", "/agents/{agent_id}", scope="agents.read", returns=AgentView)
def get_agent(call: Call, agent_id: str) -> Answer:
    """Show an agent with its latest definition.

    The ETag is the digest of the definition, which conditional changes name.
    """
    agent = versions.get_agent(call.scope, agent_id)
    return Answer(agent_view(call.scope, agent), etag=agent.digest)


@route(
    "PUT", "/agents/{agent_id}", scope="agents.write", body=DEFINITION, returns=AgentView, also={201: AgentView},
    errors=(DefinitionInvalid,),
)  # fmt: skip
def put_agent(call: Call, agent_id: str) -> Answer:
    """Create an agent or its next version.

    An unchanged definition creates no new version. Runs in progress keep the version they started with. With If-Match, the agent
    must still have that ETag.
    """
    agent, is_new = versions.save_agent(call.scope, parse_definition(agent_id, call.body.data), if_match=call.if_match)
    headers = {"Location": f"/api/v1/agents/{agent.id}"} if is_new else {}
    return Answer(agent_view(call.scope, agent), status=201 if is_new else 200, headers=headers, etag=agent.digest)


@route("DELETE", "/agents/{agent_id}", scope="agents.write", returns=DeletedView, errors=(Conflict,))
def delete_agent(call: Call, agent_id: str) -> DeletedView:
    """Delete an agent.

    Its versions and runs are deleted as well; refused while it has an unfinished run.
    """
    versions.delete_agent(call.scope, agent_id)
    return DeletedView(deleted=agent_id)


@route("GET", "/agents/{agent_id}/versions", scope="agents.read", returns=AgentVersionView, listed=True)
def list_agent_versions(call: Call, agent_id: str) -> Page[AgentVersionView]:
    """List the versions of an agent.

    The newest come first, each with its definition; `sort` takes `version` and `created_at`.
    """
    return versions.list_versions(call.scope, agent_id, call.query.page).map(version_view)


@route("GET", "/agents/{agent_id}/versions/{version}", scope="agents.read", returns=AgentVersionView, errors=(ValidationFailed,))
def get_agent_version(call: Call, agent_id: str, version: str) -> AgentVersionView:
    """Show one version of an agent.

    A version does not change, and is kept until the agent is deleted.
    """
    return version_view(versions.get_version(call.scope, agent_id, version_number(version)))
