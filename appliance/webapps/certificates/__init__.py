"""TLS certificates of hosts: uploaded, issued by the built-in authority, or ordered by ACME."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
