"""Runs before every edge: connections, TLS, admission, static files, and refused requests."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
