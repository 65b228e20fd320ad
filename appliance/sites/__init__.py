"""The hosts of visitors: connection handling and admission in front of every edge, and WebApps, shares and the CDN."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
