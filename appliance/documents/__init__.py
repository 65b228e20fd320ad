"""Documents: files with a name, a folder and tags, whose contents are kept revision by revision."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
