"""Process definitions: parsing that reports every problem at once, type checking, drafts and numbered versions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
