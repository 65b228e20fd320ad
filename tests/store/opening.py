"""The process's database for a test, with the schema of this release: migrated once, and copied for whoever comes later."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance import migrations
from appliance.core.config.sections import Storage
from appliance.core.database import db

_SQLITE = "sqlite:///"
_template: list[bytes] = []
_whole: set[str] = set()  # databases of servers that have the schema; whoever empties them keeps it


def open_migrated(url: str) -> None:
    """Open it as an appliance does; a file that is not there yet is a copy of the first that was made."""
    path = Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None
    is_new = path is not None and not path.exists()
    if path is not None and is_new and _template:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_template[0])
    db.open_database(url, Storage().writers)
    if (is_new and _template) or url in _whole:
        return
    migrations.migrate()
    if path is None:
        _whole.add(url)
    if path is not None and is_new and not _template:
        with sqlite3.connect(path) as connection:
            _template.append(connection.serialize())
        connection.close()


@contextmanager
def migrated(url: str) -> Iterator[None]:
    """The database is open for as long as the block runs."""
    open_migrated(url)
    try:
        yield
    finally:
        db.close_database()
