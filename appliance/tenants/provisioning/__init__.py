"""People and groups that identity providers add, change and remove themselves (SCIM 2.0), and the providers' tokens."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
