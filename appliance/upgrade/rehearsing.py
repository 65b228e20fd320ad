"""Copies of the database on which an upgrade is rehearsed while the appliance may run, and what has to be there for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.backups.rehearsal import temporary_folder
from appliance.backups.snapshots import take_snapshot
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import ApplianceError, StorageFull
from appliance.core.sentences import Sentence

from .candidates import FileCandidate, SchemaCandidate
from .checks import failing_as, file_of, opened_database
from .options import Report, UpgradeOptions
from .problems import UpgradeFailed
from .trials import Trial, try_out

CANDIDATE = "candidate.db"
_COPY = Sentence("the database could not be copied")
IN_FILE = "--rehearse-in-file"


def is_on_server(config: Config, options: UpgradeOptions) -> bool:
    """Whether the upgrade is rehearsed on the database server itself."""
    return file_of(config) is None and not options.in_file


def prepare_server(config: Config, options: UpgradeOptions) -> None:
    """Drop what rehearsals have left on the server that were killed; UpgradeFailed if the role may not make a copy there."""
    drop_leftovers(config, options.report)
    if not is_on_server(config, options):
        return
    from appliance.core.database.throw_away_schemas import grant_statement, may_create, open_session

    with failing_as(_COPY), open_session(config.database_url) as session:
        if not may_create(session):
            raise UpgradeFailed(Sentence(
                "the upgrade is rehearsed in a schema of its own, which the role of storage.database may not create. Let the owner "
                "of the database run `%(statement)s;`, or add %(option)s, which rehearses it in an SQLite file only. Nothing was "
                "changed", statement=grant_statement(session), option=IN_FILE,
            ))  # fmt: skip


def drop_leftovers(config: Config, report: Report) -> None:
    """Drop what rehearsals have left on the server whose process was killed."""
    if file_of(config) is not None:
        return
    url = config.database_url
    from appliance.core.database.throw_away_schemas import drop_abandoned, open_session

    with failing_as(Sentence("what a rehearsal has left on the server could not be dropped")), open_session(url) as session:
        for schema in drop_abandoned(session):
            report("clean up", f"the schema {schema}, which a rehearsal that was killed had left, was dropped")


def try_copy(config: Config, options: UpgradeOptions) -> tuple[Trial, int]:
    """Try out a copy that blocks no writers; returns also how long the copy took."""
    with temporary_folder(config) as room:
        if is_on_server(config, options):
            start = clock.monotonic()
            with failing_as(_COPY), _copied_schema(config, options) as copy:
                copy_ms = _elapsed(start)
                options.report("copy", f"{copy.rows} rows were copied into {copy.schema} on the server, in {copy_ms / 1000:.1f} s")
                return try_out(SchemaCandidate(config, room, copy.url, is_live=True), options), copy_ms
        file = room / CANDIDATE
        copy_ms = time_snapshot(config, file)
        options.report("copy", f"a copy of {file.stat().st_size / (1 << 20):.1f} MiB took {copy_ms / 1000:.1f} s")
        return try_out(FileCandidate(config, room, file, is_live=True), options), copy_ms


def time_keeping(config: Config, options: UpgradeOptions) -> int:
    """Copy the rows on the server into a file, as the upgrade keeps them, and delete it; returns how many milliseconds it took."""
    with temporary_folder(config) as room:
        file = room / CANDIDATE
        elapsed = time_snapshot(config, file)
        size = file.stat().st_size / (1 << 20)
    options.report("keep", f"the upgrade will keep the former rows in a file: {size:.1f} MiB took {elapsed / 1000:.1f} s")
    return elapsed


def time_snapshot(config: Config, file: Path) -> int:
    """Copy the database into a file; returns how many milliseconds it took."""
    start = clock.monotonic()
    with failing_as(_COPY), opened_database(config):
        take_snapshot(config.database_url, file)
    return _elapsed(start)


def _elapsed(start: float) -> int:
    return round((clock.monotonic() - start) * 1000)


@dataclass(frozen=True)
class _SchemaCopy:
    """A copy on the server: its schema, the URL of it as a database, and how many rows it has."""

    schema: str
    url: str
    rows: int


@contextmanager
def _copied_schema(config: Config, options: UpgradeOptions) -> Iterator[_SchemaCopy]:
    """A copy of all tables in a schema of its own, which is dropped at the end."""
    from appliance.core.database import throw_away_schemas as schemas
    from appliance.core.database.schema_copies import SchemaCopy

    schema = schemas.name_schema()
    try:
        with schemas.open_session(config.database_url) as reader, schemas.sharing(reader, schema):
            url = schemas.url_in(config.database_url, reader.info.options, schema)
            ((source,),) = reader.execute("SELECT current_schema()").fetchall()
            with schemas.open_session(url) as writer, schemas.sharing(writer, schema):
                schemas.create_schema(writer, schema)
                rows = SchemaCopy(reader, writer, str(source), schema).make()
            yield _SchemaCopy(schema, url, rows)
    except StorageFull as error:
        raise UpgradeFailed(Sentence(
            "%(step)s: %(reason)s. Free space there, or add %(option)s, which rehearses the upgrade in an SQLite file only. "
            "Nothing was changed", step=_COPY, reason=error.message, option=IN_FILE,
        )) from error  # fmt: skip
    finally:
        _drop(config, options, schema)


def _drop(config: Config, options: UpgradeOptions, schema: str) -> None:
    """Drop a schema; if that fails, say so: the result of the rehearsal does not depend on it, and the next one drops it."""
    from appliance.core.database.throw_away_schemas import drop_schema, open_session

    try:
        with open_session(config.database_url) as session:
            drop_schema(session, schema)
    except ApplianceError as error:
        options.report("left", f"the schema {schema} was not dropped ({error.message}); the next `gos upgrade` drops it")
