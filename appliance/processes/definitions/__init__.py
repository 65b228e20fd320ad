"""Process definitions: parsed with every problem at once, typed, checked, and kept as drafts and numbered versions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
