"""The MCP edge: agents and assistants reach a tenant's governed tools and skills at /mcp."""

from appliance.solutions.services import Services

from .edge import McpEdge
from .server import make_server
from .skills import SkillHandlers

__all__ = ["McpEdge", "make_edge", "make_server"]


def make_edge(services: Services) -> McpEdge:
    """The edge over every tool and skill of the appliance."""
    skills = SkillHandlers(services.skills, services.tools, services.threads)
    return McpEdge(services, make_server(services.tools, services.threads, services.sealer, [skills]))
