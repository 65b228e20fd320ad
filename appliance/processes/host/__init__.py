"""The host side of a running step: the calls it can make, the grants that allow them and the journal that records them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
