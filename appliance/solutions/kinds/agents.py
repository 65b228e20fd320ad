"""Compares the agents of a solution with those of a tenant."""

from appliance.agents import versions
from appliance.agents.skills import has_skill
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.integrations import Integrations
from appliance.solutions.definition import Solution
from appliance.solutions.kinds.changes import Change


def plan_agent(scope: TenantScope, integrations: Integrations, solution: Solution, agent_id: str) -> Change:
    """What an apply would do with this agent."""
    definition = solution.agents[agent_id]
    blocked = _missing_part(scope, integrations, solution, agent_id)
    try:
        agent = versions.get_agent(scope, agent_id)
    except NotFound:
        return Change("agent", agent_id, "create", "version 1", blocked)
    if agent.digest == definition.digest():
        return Change("agent", agent_id, "unchanged", f"version {agent.version}", blocked)
    before, after = versions.get_version(scope, agent_id).definition.document(), definition.document()
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return Change("agent", agent_id, "update", f"{', '.join(changed)} changed; version {agent.version + 1}", blocked)


def _missing_part(scope: TenantScope, integrations: Integrations, solution: Solution, agent_id: str) -> str | None:
    """Why the agent is blocked: the first integration or skill it uses that exists nowhere; None if all exist."""
    for slug in sorted({slug for slug, _ in solution.agents[agent_id].actions} - set(solution.integrations)):
        try:
            integrations.get_integration(scope, slug)
        except NotFound:
            return f"it uses the integration {slug}, which is in neither the tenant nor the solution; add integrations/{slug}.yaml"
    for name in sorted(set(solution.agents[agent_id].skills) - set(solution.skills)):
        if not has_skill(scope, name):
            return f"it uses the skill {name}, which is in neither the tenant nor the solution; add SKILLS/{name}/"
    return None
