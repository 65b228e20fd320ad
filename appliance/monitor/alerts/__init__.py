"""Alerts: conditions that are looked at again and again, and who is told when one begins and ceases to hold."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
