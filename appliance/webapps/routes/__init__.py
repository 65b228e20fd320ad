"""The routes of a version: parsing, request mapping, and the access they need."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
