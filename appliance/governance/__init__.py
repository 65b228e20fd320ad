"""The one gate that flows, agents, MCP and REST pass on their way to a foreign system."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
