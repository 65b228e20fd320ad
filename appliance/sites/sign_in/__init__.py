"""The gate of a WebApp: who may open it, and how visitors sign in."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
