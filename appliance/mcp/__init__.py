"""The MCP edge: serves a tenant's governed tools and skills to agents and assistants at /mcp."""

from typing import TYPE_CHECKING

from appliance.web import Services

from .edge import McpEdge

if TYPE_CHECKING:
    from .transport import Transport

__all__ = ["McpEdge", "make_edge"]


def make_edge(services: Services) -> McpEdge:
    """Build the edge for all tools and skills of the appliance; the SDK is loaded by the first request."""

    def load() -> "Transport":
        from .server import make_server
        from .skills import SkillHandlers
        from .tools import ToolHandlers
        from .transport import Transport

        skills = SkillHandlers(services.agents.skills, services.agents.tools, services.threads)
        tools = ToolHandlers(services.agents.tools, services.threads, services.limits.streams)
        server = make_server(tools, services.sealer, [skills])
        return Transport(server, services.config.limits.json_body_kb << 10)

    return McpEdge(services, load)
