"""What a step reaches: its journal, its grants, secrets, models, documents and the governed executor."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
