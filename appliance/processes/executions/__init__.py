"""Executions as callers see them: started, found, read, cancelled and retried."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
