"""Connectors: the contract that plugins implement, the registry that loads them, and the controlled path to the network."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
