"""Points in time: ships the write-ahead log of SQLite as it grows, and restores the appliance as it was at a second.

`shipping` is the thread that does it, `chains` what it ships to an archive, `restoring` the way back.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
