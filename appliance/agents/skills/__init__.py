"""Skills: folders of instructions in the Agent Skills format, held by digest, trusted only where a person said so."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
