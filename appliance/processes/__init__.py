"""ProcessFlow: definitions and versions, the engine that decides, the runner that performs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
