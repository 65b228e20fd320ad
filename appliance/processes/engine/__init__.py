"""What happens next in an execution, and the one loop that performs it and commits under its fence."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
