"""Upgrades the data of another release to the schema of this one: `gos upgrade`.

The database that the appliance uses is changed once, in one transaction, and only after a copy of it was migrated, compared and
started (`trials`).  So a process that is killed at any moment leaves the old database or the new one.  `upgrading` is the order of
the steps, `checks` come before them, `files` changes an SQLite file and `servers` a PostgreSQL database, `journal` is the record
that a later run or start reads, and `status` reports it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
