"""The kinds of items in a solution: how each is compared with the tenant, applied and exported."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
