"""Requests to WebApps: who came, what they got, how much that was, and how much of it is allowed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
