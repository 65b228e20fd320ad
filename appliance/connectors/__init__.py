"""Connectors: the contract a plugin fulfils, the registry that finds plugins, and the only way out to the network."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
