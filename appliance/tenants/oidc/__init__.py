"""OpenID Connect as a client, for the console and WebApps alike: discovery, sign-in with PKCE, keys and tokens."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
