"""Connectors: the contract that plugins implement, the registry that loads them, and the controlled path to the network."""

import lazy_loader

from appliance.core.imports import import_without

import_without("httpx", "click", "rich")  # the libraries of its command line, which take longer than itself

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
