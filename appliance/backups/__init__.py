"""Backups of a whole appliance, and exports and imports of one tenant, each as one file."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
