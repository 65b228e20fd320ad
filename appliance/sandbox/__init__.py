"""Runs untrusted code (steps, expressions, decisions) in WebAssembly, inside processes without privileges or secrets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
