"""The table `migration` of the open database: which migrations it has, and since when."""

from appliance.core.database import db

CREATE = "CREATE TABLE IF NOT EXISTS migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"

UNFINISHED_MOVE = "unfinished_move"
"""The table of a database into which `gos migrate-to` has not yet copied everything."""

LAST_SQL = "SELECT max(number) FROM migration"
"""Reads the number of the last migration of any database that has a schema."""


def is_unfinished_move() -> bool:
    """Whether the open database is the target of a `gos migrate-to` that has not completed."""
    return UNFINISHED_MOVE in db.database.get_tables()


def is_begun() -> bool:
    """Whether the open database has a schema, of any release."""
    return "migration" in db.database.get_tables()


def numbers() -> set[int]:
    """The numbers of its migrations."""
    return {int(row[0]) for row in db.rows("SELECT number FROM migration")} if is_begun() else set()


def last_applied() -> int:
    """The number of the last migration of the open database, which has a schema."""
    ((number,),) = db.rows(LAST_SQL)
    return int(number)


def record(number: int, name: str, at: int) -> None:
    """Inside a write: record that a migration was applied, at this time in epoch milliseconds."""
    db.execute("INSERT INTO migration (number, name, applied_at) VALUES (?, ?, ?)", (number, name, at))


def created_at() -> int:
    """When the open database got its baseline, in epoch milliseconds."""
    ((at,),) = db.rows("SELECT applied_at FROM migration ORDER BY number LIMIT 1")
    return int(at)
