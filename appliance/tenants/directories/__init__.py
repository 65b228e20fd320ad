"""Reads people and groups of directories (LDAP) and checks passwords there, by the connector `ldap`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
