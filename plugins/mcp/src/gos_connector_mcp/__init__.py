"""Connector `mcp`: the allowed tools of an outside MCP server as actions."""

from gos_connector_mcp.connector import McpConnector

__all__ = ["McpConnector"]
