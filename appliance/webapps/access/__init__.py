"""Access control of WebApps: who may open an app, sign-in, and visitor sessions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
