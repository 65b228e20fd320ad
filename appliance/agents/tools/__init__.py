"""The tools that agents and MCP clients act with: each calls the very verb that its REST twin calls."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
