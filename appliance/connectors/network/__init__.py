"""Host names and IP addresses: parsing, resolution, and the rules on which may be reached."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
