"""Policies: what may be done, by whom, and who must approve it first."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
