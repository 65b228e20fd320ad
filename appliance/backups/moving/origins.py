"""Opens the database from which an installation moves: read in one transaction, and locked against every writer meanwhile."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from appliance import migrations
from appliance.backups.copying import FileSource, ServerSource, Source, supported_number
from appliance.core.database import db
from appliance.core.database.presence import is_any_alive
from appliance.core.errors import ConfigInvalid, Conflict
from appliance.core.sentences import Sentence

SQLITE = "sqlite:///"


@contextmanager
def open_origin(url: str, data: Path) -> Iterator[Source]:
    """The database of a stopped appliance; Conflict while one of its processes runs, on this machine or another."""
    refuse_running(data)
    with _open_file(Path(url.removeprefix(SQLITE))) if url.startswith(SQLITE) else _open_server(url) as source:
        _refuse_schema(source)
        yield source


def refuse_running(data: Path) -> None:
    """Conflict while a process of the appliance uses the data folder."""
    if is_any_alive(data / "workers"):
        raise _running(data)


@contextmanager
def _open_file(path: Path) -> Iterator[Source]:
    if not path.is_file():
        raise ConfigInvalid(Sentence("there is no database %(path)s; set the data folder of the appliance with --data", path=path))
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=1, isolation_level=None)) as file:
        try:
            file.execute("BEGIN IMMEDIATE")  # Whoever wants to write waits, and then fails.
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise _running(path) from error
            raise
        file.execute("PRAGMA query_only=1")
        file.execute("PRAGMA trusted_schema=0")
        try:
            yield FileSource(file.execute)
        finally:
            file.execute("ROLLBACK")


@contextmanager
def _open_server(url: str) -> Iterator[Source]:
    server = db.connect_server(url)
    try:
        with server.keep_connection():
            server.lock_out_writers()
            with server.snapshot():
                yield ServerSource(server)
    finally:
        server.shut_readers()


def _refuse_schema(source: Source) -> None:
    tables = source.tables()
    if "migration" not in tables:
        raise ConfigInvalid("the database has no appliance in it; name the configuration of the appliance with --config or --data")
    if migrations.UNFINISHED_MOVE in tables:
        raise Conflict("the database is itself the target of a `gos migrate-to` that has not completed; complete that first")
    number = last_migration(source)
    if supported_number(number) > migrations.last_number():
        raise ConfigInvalid(Sentence(
            "the database has migration %(number)s, this release knows %(known)s: install the newer release",
            number=number, known=migrations.last_number(),
        ))


def last_migration(source: Source) -> int:
    """The number of the last migration of a database."""
    ((number,),) = source.rows("SELECT max(number) FROM migration")
    return int(number)


def _running(where: Path) -> Conflict:
    return Conflict(Sentence("an appliance is running on %(where)s; stop all of its processes first", where=where))
