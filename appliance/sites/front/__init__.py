"""Before any edge: connections, admission, static files, and what is refused at once."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
