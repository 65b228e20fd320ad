"""Decides when an execution starts or continues: due times, fair sharing among tenants, concurrency slots, crash recovery."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
