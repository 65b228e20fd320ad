"""What a solution holds, kind by kind: compared with the tenant, applied and written back."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
