"""Governs every call to a foreign system, whether by flows, agents, MCP or REST: policies, approvals, the executor."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
