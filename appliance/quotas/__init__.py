"""Quotas of tenants: what each may use, what it has used, and the notices at 80 percent."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
