"""Exports traces, metrics and audit trails by OTLP over HTTP; only loaded if a collector is configured."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
