"""Grants of processes and WebApps: what they may access, and confirmations by owners."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
