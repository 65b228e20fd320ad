"""Second factors of people: passkeys, codes of an app, recovery codes, and fresh proofs for sensitive actions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
