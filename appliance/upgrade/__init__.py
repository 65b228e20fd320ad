"""Upgrades the data of another release to the schema of this one: `gos upgrade`.

The database that the appliance uses is changed once, in one transaction (`swapping`), and only after a copy of it was migrated,
compared and started (`trials`).  So a process that is killed at any moment leaves the old database or the new one.  `upgrading` is
the order of the steps, `checks` come before them, `files` keeps other processes out of an SQLite file, `journal` is the record that
a later run or start reads and `settling` completes, `rolling_back` goes back, and `status` reports.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
