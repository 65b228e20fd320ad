"""Tenants, users, memberships, sessions, API keys, scopes, rate limits and secrets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
