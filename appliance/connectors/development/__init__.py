"""For authors of connectors: a new package, live reload, and what a release may change."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
