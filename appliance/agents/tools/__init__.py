"""The tools of agents and MCP clients; each calls the same domain function as its REST counterpart."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
