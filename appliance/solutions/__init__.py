"""A folder and a tenant: plan, apply and pull solutions; and the bundle of services that edges call."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
