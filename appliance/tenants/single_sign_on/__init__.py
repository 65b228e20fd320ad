"""Sign-in to the console with identity providers: accounts, memberships by groups, sessions that the provider can end."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
