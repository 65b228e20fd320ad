"""Brings the open database to this release's schema, and compares the two."""

import logging
from collections.abc import Callable
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid

from . import development, ledger
from .sequence import last_number, modules, name_of, statements

log = logging.getLogger(__name__)


def migrate(until: int | None = None) -> list[str]:
    """Bring the open database to this release's schema, or to that of the migration `until`; each migration is one transaction.

    Returns the names of the migrations that were applied.  ConfigInvalid if the database is of a newer release, or of an older
    one that cannot be upgraded.
    """
    refuse_unsupported()
    if development.is_unadopted(ledger.numbers()):
        db.write(development.adopt)
    existing = ledger.numbers()
    applied = []
    for number, name in modules().items():
        if number not in existing and (until is None or number <= until) and db.write(partial(_apply, number)):
            applied.append(name.removeprefix("m"))
            log.info("migrated", extra={"fields": {"migration": applied[-1]}})
    return applied


def migrate_at_once(before: Callable[[], None], after: Callable[[], None]) -> list[str]:
    """Like `migrate`, with all migrations in one transaction, which `before` and `after` can check: an error undoes all of it."""
    refuse_unsupported()

    def apply_all() -> list[str]:
        before()
        development.adopt()
        applied = [name.removeprefix("m") for number, name in modules().items() if _apply(number)]
        after()
        return applied

    return db.write(apply_all)


def pending() -> int:
    """How many migrations the open database still lacks."""
    return len(modules().keys() - ledger.numbers())


def newer() -> int | None:
    """The last migration of the open database if it is of a newer release; otherwise None."""
    last = max(ledger.numbers(), default=0)
    return last if last > last_number() else None


def refuse_unsupported() -> None:
    """ConfigInvalid if the open database is of a newer release, of an older one that cannot be upgraded, or incomplete."""
    if ledger.is_unfinished_move():
        raise ConfigInvalid(
            "the database is incomplete, because a `gos migrate-to` into it has not completed: run the same command again, or go "
            "on with the configuration from which it copies"
        )
    if (unknown := newer()) is not None:
        raise ConfigInvalid(f"the database has migration {unknown}, this release knows {last_number()}: install the newer release")
    development.refuse_incomplete(ledger.numbers())


def refuse_other() -> None:
    """ConfigInvalid unless the open database has this release's schema; changes nothing."""
    refuse_unsupported()
    if lacking := pending():
        number = "1 migration" if lacking == 1 else f"{lacking} migrations"
        raise ConfigInvalid(
            f"the database lacks {number} of this release, and this command only reads: stop the appliance and type `gos upgrade`, "
            "which can be rolled back; a start of this release and `gos migrate` upgrade it without a way back"
        )


def _apply(number: int) -> bool:
    """Inside a write: apply a migration, unless a process that started at the same time already has; returns whether it did."""
    db.execute(ledger.CREATE)
    if number in ledger.numbers():
        return False
    for statement in statements(number, is_sqlite=db.is_sqlite()):
        db.execute(statement)
    ledger.record(number, name_of(number), clock.now_ms())
    return True
