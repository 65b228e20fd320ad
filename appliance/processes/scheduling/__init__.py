"""When an execution begins or goes on: its time, its turn among tenants, its slot, and what a crash forgot."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
