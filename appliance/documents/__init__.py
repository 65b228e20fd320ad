"""Documents: files with a name, a folder and tags, and numbered revisions of their content."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
