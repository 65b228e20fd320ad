"""What the edges share, from an ASGI request to a verb and back: request, body, authentication, refusals, responses, services."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
