"""Monitoring: log lines, failures, metrics, counters over time and the audit trail."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
