"""Language models: a tenant's profiles, the client that asks them, what it costs and what of a prompt stays here."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
