"""The one gate that flows, agents, MCP and REST pass on their way to a foreign system."""
