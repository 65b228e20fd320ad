"""What stands in front of the edges: the host table, admission, static files; later WebApps and the CDN."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
