"""The mark of a database on a server that nobody has used since its upgrade.

A file in the data folder cannot say that, because another machine may be the first to use the database.  It is a comment, which no
backup, no comparison of schemas and no release sees.
"""

from appliance.core.database import db

_MARK = "unused since its upgrade"
_READ = "SELECT obj_description(to_regclass('migration'), 'pg_class')"


def mark_unused() -> None:
    """Inside the write of an upgrade on a server."""
    db.execute(f"COMMENT ON TABLE migration IS '{_MARK}'")


def is_marked() -> bool:
    """Whether nobody has used the open database, on a server, since its upgrade."""
    return db.rows(_READ) == [(_MARK,)]


def remove_mark() -> None:
    """Remove the mark before anything is written to the open database."""
    if not db.is_sqlite() and is_marked():
        db.write(lambda: db.execute("COMMENT ON TABLE migration IS NULL"))
