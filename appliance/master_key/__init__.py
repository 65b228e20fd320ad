"""The master keys of this appliance: which the database needs, their rotation, and the sealing of all values anew."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
