"""Custom domains of WebApps: claimed by a tenant, verified, monitored, and released with a waiting period."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
