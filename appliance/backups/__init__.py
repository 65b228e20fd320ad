"""Backups of a whole appliance in one file, and exports of one tenant."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
