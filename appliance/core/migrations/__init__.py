"""Numbered, forward migrations: modules `mNNNN_name` with STATEMENTS in the portable subset of SQL."""

import importlib
import logging
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid

log = logging.getLogger(__name__)

_TYPES = {
    True: {"blob": "BLOB", "serial": "INTEGER PRIMARY KEY AUTOINCREMENT"},
    False: {"blob": "BYTEA", "serial": "BIGSERIAL PRIMARY KEY"},
}


@dataclass(frozen=True)
class Migration:
    """One step of the schema: its number, name and statements (`{blob}` and `{serial}` are the dialect's), and `more` of
    them where SQLite is (True) or is not."""

    number: int
    name: str
    statements: list[str]
    more: Mapping[bool, Sequence[str]]


def all_migrations() -> list[Migration]:
    """Every migration of this release in order; numbers are unique and without gaps."""
    migrations = []
    for module in pkgutil.iter_modules(__path__):
        number, _, name = module.name.removeprefix("m").partition("_")
        written = importlib.import_module(f"{__name__}.{module.name}")
        more = {True: getattr(written, "ON_SQLITE", ()), False: getattr(written, "ON_POSTGRESQL", ())}
        migrations.append(Migration(int(number), name, list(written.STATEMENTS), more))
    migrations.sort(key=lambda m: m.number)
    if [m.number for m in migrations] != list(range(1, len(migrations) + 1)):
        raise ConfigInvalid(f"migrations must be numbered without gaps, not {[m.number for m in migrations]}")
    return migrations


def migrate(until: int | None = None) -> list[str]:
    """Bring the open database to this release's schema, or to that of a migration; each migration is one transaction.

    Answers the names applied.  ConfigInvalid when the database was written by a newer release.
    """
    db.write(_make_ledger)
    _refuse_newer()
    done, known = _done(), all_migrations()
    applied = []
    for migration in known[:until]:
        if migration.number not in done and db.write(partial(_apply, migration)):
            applied.append(f"{migration.number:04d}_{migration.name}")
            log.info("migrated", extra={"fields": {"migration": applied[-1]}})
    return applied


def pending() -> int:
    """How many migrations the open database still lacks."""
    done = _done()
    return sum(1 for m in all_migrations() if m.number not in done)


def newer() -> int | None:
    """The last migration of the open database if this release does not know it; None when it knows all."""
    return max(_done() - {m.number for m in all_migrations()}, default=None)


def refuse_other() -> None:
    """ConfigInvalid unless the open database has this release's schema; nothing of it is changed."""
    _refuse_newer()
    if lacking := pending():
        number = "1 migration" if lacking == 1 else f"{lacking} migrations"
        raise ConfigInvalid(
            f"the database lacks {number} of this release, and this command only reads: make a backup, then type `gos migrate`, "
            "or start this release; there is no way back"
        )


def _refuse_newer() -> None:
    if (unknown := newer()) is not None:
        known = len(all_migrations())
        raise ConfigInvalid(f"the database has migration {unknown}, this release knows {known}: install the newer release")


def _done() -> set[int]:
    return {int(row[0]) for row in db.rows("SELECT number FROM migration")} if is_begun() else set()


def applied_at(name: str) -> int:
    """When the open database got the migration of this name, in epoch milliseconds."""
    ((at,),) = db.rows("SELECT applied_at FROM migration WHERE name = ?", (name,))
    return int(at)


def is_begun() -> bool:
    """Whether the open database has a schema of ours, of whatever release."""
    return "migration" in db.database.get_tables()


def statements_of_file(until: int, after: int = 0) -> Iterator[str]:
    """The statements that bring an SQLite file, empty or with the schema of a migration, to that of another; its ledger stays."""
    yield _LEDGER
    for migration in all_migrations()[after:until]:
        for statement in (*migration.statements, *migration.more[True]):
            yield statement.format(**_TYPES[True])


_LEDGER = "CREATE TABLE IF NOT EXISTS migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"


def _make_ledger() -> None:
    db.execute(_LEDGER)


def _apply(migration: Migration) -> bool:
    """Apply it, unless a process that started at the same time was quicker."""
    if db.rows("SELECT 1 FROM migration WHERE number = ?", (migration.number,)):
        return False
    for statement in (*migration.statements, *migration.more[db.is_sqlite()]):
        db.execute(statement.format(**_TYPES[db.is_sqlite()]))
    db.execute(
        "INSERT INTO migration (number, name, applied_at) VALUES (?, ?, ?)",
        (migration.number, migration.name, clock.now_ms()),
    )
    return True
