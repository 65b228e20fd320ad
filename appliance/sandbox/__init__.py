"""Runs untrusted code: steps, expressions and decisions, in WebAssembly inside processes that hold nothing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
