"""The tables of SQLite that hold rows."""

from appliance.core.database import db


def stored_tables() -> list[str]:
    """All but the virtual ones, whose rows are in others beside them."""
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
    return [str(name) for (name,) in db.rows(names)]
