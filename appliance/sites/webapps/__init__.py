"""WebApps on their hosts: files, routes, previews and custom domains."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
