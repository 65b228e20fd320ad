"""The shared base of all REST routes: declaration, authentication, bodies, answers, errors and the OpenAPI document."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
