"""Traces and metrics to a collector by OTLP over HTTP; loaded only where one is configured."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
