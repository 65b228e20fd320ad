"""What is in a content: its type, text and picture, and whether anybody may have it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
