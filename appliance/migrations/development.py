"""Databases of the development versions before 0.1.0, whose schema was made by migrations 1 to 75.

With all of them, such a database has the same tables as the baseline, and its ledger is replaced.  With fewer, it is refused:
the migrations themselves are gone.
"""

import logging

from appliance.core.database import db
from appliance.core.errors import ConfigInvalid

from . import ledger
from .sequence import BASELINE, name_of

LAST = 75
DEVELOPMENT_VERSION = "commit c5677043 of 24 November 2026"
"""The last version that has the migrations."""
_GRANTS = 63
"""The migration that introduced grants: grace periods count from its time, see `tenants/grants/grant_assessment.py`."""

log = logging.getLogger(__name__)


def equivalent_number(number: int) -> int | None:
    """The migration of this release with the schema of a ledger that ends with this number (0: empty); None if there is none."""
    if number >= BASELINE or not number:
        return number
    return BASELINE if number == LAST else None


def is_unadopted(numbers: set[int]) -> bool:
    """Whether these are the numbers of a development version's ledger."""
    return bool(numbers) and min(numbers) < BASELINE


def refuse_incomplete(numbers: set[int]) -> None:
    """ConfigInvalid if this is the ledger of a development version without all of its migrations."""
    if is_unadopted(numbers) and numbers != set(range(1, LAST + 1)):
        raise ConfigInvalid(
            f"the database is of a development version before 0.1.0 and has {len(numbers)} of its {LAST} migrations, which this "
            f"release cannot complete: make a backup, start {DEVELOPMENT_VERSION} on it once, then start this release"
        )


def adopt() -> None:
    """Inside a write: replace a development version's ledger by the baseline's; does nothing with another ledger.

    ConfigInvalid if it is incomplete.
    """
    numbers = ledger.numbers()
    refuse_incomplete(numbers)
    if not is_unadopted(numbers):
        return
    for tenant_id, kind, target in db.rows("SELECT tenant_id, kind, target FROM secret_use ORDER BY tenant_id, kind, target"):
        log.warning("the secrets of %s %s in the tenant %s are not bound to it: bind them in the console", kind, target, tenant_id)
    if not db.is_sqlite():
        _rename_constraints()
    ((at,),) = db.rows("SELECT applied_at FROM migration WHERE number = ?", (_GRANTS,))
    db.execute("DELETE FROM migration")
    ledger.record(BASELINE, name_of(BASELINE), int(at))


def _rename_constraints() -> None:
    """PostgreSQL: the table `approval` was created as `approval_new`, and its constraints kept that name."""
    sql = "SELECT conname FROM pg_constraint WHERE conrelid = CAST('approval' AS regclass) AND conname LIKE 'approval_new_%'"
    for (name,) in db.rows(sql):
        db.execute(f'ALTER TABLE approval RENAME CONSTRAINT "{name}" TO "{name.replace("_new_", "_", 1)}"')
