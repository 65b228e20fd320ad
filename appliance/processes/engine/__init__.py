"""The execution engine: decides what happens next, and runs it in one loop that commits under a fencing token."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
