"""Language models: a tenant's profiles, the client that calls providers, budgets and usage, and redaction of prompts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
