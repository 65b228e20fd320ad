"""Integrations: configured connectors of a tenant with sealed secrets, and the record of every call."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
