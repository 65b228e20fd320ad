"""Alerts: conditions that are evaluated regularly, with notifications when one fires or resolves."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
