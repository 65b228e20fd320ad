"""The schema of the database: a baseline, and the numbered migrations that change it.

The modules `mNNNN_name` run in the order of their numbers, without gaps.  The first, `m0100_baseline`, creates the tables from the
`baseline.py` of each room.  A migration that has been released is never edited, and there is no way back.

To change the schema:

1. Add `mNNNN_name.py` with the next number.  Its docstring says what changes and why.  `STATEMENTS` is SQL for both databases, in
   which `{blob}` and `{serial}` stand for types that differ and `{{}}` for braces; what only one database understands goes into
   `ON_SQLITE` or `ON_POSTGRESQL`, which run afterwards.  A migration is one transaction.
2. Change the model of the table in its room.
3. List a new table in `backups/tenant_tables.py`, and a dropped one in `tests/upgrade/test_upgrade.py`.
4. Run `pytest tests/migrations tests/upgrade tests/backups`: they upgrade databases with a row in every table, on SQLite and on
   PostgreSQL.  At a release, `python -m tests.upgrade.make` adds databases of its schema.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
