"""WebApps: user-facing apps made of numbered, immutable versions, one of which is published."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
