"""REST routes under /api/v1/, one module per resource: each parses the request, calls one domain function and renders a view."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
