"""The tools that agents and MCP clients act with: each calls the very verb that its REST twin calls."""
