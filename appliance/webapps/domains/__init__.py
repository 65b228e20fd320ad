"""Host names of their own for WebApps: claimed by a tenant, proven, watched, and given up with a period of rest."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
