"""What the appliance stores about one person, in all tables: the register of kinds, the export, and the erasure."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
