"""Prepares the unpacked file of an export: whatever would need a long write in the database is done in the file before."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.backups.copying import FileSource
from appliance.backups.problems import BackupInvalid, JobControl
from appliance.backups.tenant_tables import EXPORTED
from appliance.backups.unfinished_work import stop_in_file
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.scope import APPLIANCE, TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit, make_secret, seal_context

Seal = Callable[[bytes, str], bytes]
_AT_ONCE = 1_000
_PAUSE = (
    "UPDATE process SET paused_at = ? WHERE paused_at IS NULL AND EXISTS "
    "(SELECT 1 FROM trigger_state t WHERE t.tenant_id = process.tenant_id AND t.process_id = process.id)"
)


class SecretReplacement:
    """Replaces secrets sealed by another appliance with empty or new ones sealed by this appliance's key."""

    def __init__(self, sealer: Sealer) -> None:
        self._seal: Seal = sealer.seal

    def apply(self, scope: TenantScope, file: sqlite3.Connection) -> None:
        """Remove the secrets of integrations in the file, and give webhooks new ones and disable them."""
        tenant = scope.tenant_id
        for (slug,) in file.execute("SELECT id FROM integration").fetchall():
            nothing = self._seal(b"{}", f"{tenant}/integration/{slug}")
            file.execute("UPDATE integration SET sealed = ? WHERE id = ?", (nothing, slug))
        for (webhook,) in file.execute("SELECT id FROM webhook").fetchall():
            file.execute(
                "UPDATE webhook SET sealed = ?, state = 'disabled', disabled_reason = ? WHERE id = ?",
                (
                    self._seal(make_secret().encode(), seal_context(tenant, webhook)),
                    "imported: rotate its secret, tell its receiver, then enable it", webhook,
                ),
            )  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """A file whose rows can be inserted: the status of its trail before, and how many processes were paused."""

    trail: audit.ChainStatus
    paused: int


def prepare_file(path: Path, scope: TenantScope, resealing: SecretReplacement, course: JobControl, *, active: bool) -> Prepared:
    """Make the rows in the file those of the scope's tenant, cancel its unfinished work, replace its secrets and, unless `active`,
    pause the processes with triggers.  BackupInvalid or Stopped.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as file, _invalid_rows():
        for setting in ("trusted_schema=0", "journal_mode=OFF", "synchronous=OFF"):  # it is deleted if anything fails
            file.execute(f"PRAGMA {setting}")
        file.execute("BEGIN")
        former = _rename(file, scope, course)
        stop_in_file(scope, file)
        resealing.apply(scope, file)
        trail = _rename_trail(file, former, scope.tenant_id)
        paused = 0 if active else _pause(file)
        file.execute("COMMIT")
        return Prepared(trail, paused)


def _pause(file: sqlite3.Connection) -> int:
    """Pause the processes that have triggers, and disable alerts; returns the number of the former."""
    file.execute("UPDATE alert SET enabled = 0")
    return file.execute(_PAUSE, (clock.now_ms(),)).rowcount


@contextmanager
def _invalid_rows() -> Iterator[None]:
    try:
        yield
    except (sqlite3.IntegrityError, ValueError, TypeError) as error:
        raise BackupInvalid(
            Sentence("the rows of the export are invalid (%(error)s); do not use this file", error=f"{error!r:.200}")
        ) from error


def _rename(file: sqlite3.Connection, scope: TenantScope, course: JobControl) -> str:
    """Give all rows to the tenant, whatever the file says; returns the id of the exported one."""
    ((former,),) = file.execute("SELECT id FROM tenant WHERE id <> ?", (APPLIANCE,))
    tables = [table for table in FileSource(file.execute).tables() if table in EXPORTED]
    for number, table in enumerate(tables):
        course.refuse_stopping()
        course.report("preparing", number, len(tables))
        file.execute(f'UPDATE "{table}" SET tenant_id = ? WHERE tenant_id IS NOT ?', (scope.tenant_id, scope.tenant_id))  # noqa: S608
    return str(former)


def _rename_trail(file: sqlite3.Connection, former: str, tenant_id: str) -> audit.ChainStatus:
    """Verify the trail as the former tenant's, and rehash it if the tenant has another id now."""
    chain = file.execute(f"SELECT {', '.join(audit.CHAIN_COLUMNS)} FROM audit_chain").fetchone()  # noqa: S608  names of our own
    status = audit.verify_rows(chain, _entries(file, tenant_id), former)
    if former != tenant_id and chain is not None:
        last = chain[1]
        sql = "UPDATE audit_entry SET previous_hash = ?, hash = ? WHERE tenant_id = ? AND seq = ?"
        for seq, before, last in audit.rehash_rows(chain[1], _entries(file, tenant_id), tenant_id):
            file.execute(sql, (before, last, tenant_id, seq))
        file.execute("UPDATE audit_chain SET last_hash = ?", (last,))
    return status


def _entries(file: sqlite3.Connection, tenant_id: str) -> Iterator[tuple[Any, ...]]:
    """The rows of the trail in order, some at a time, so that they can be changed meanwhile."""
    last, position = -(2**63), audit.ENTRY_COLUMNS.index("seq")
    sql = f"SELECT {', '.join(audit.ENTRY_COLUMNS)} FROM audit_entry WHERE tenant_id = ? AND seq > ? ORDER BY seq LIMIT {_AT_ONCE}"  # noqa: S608
    while rows := file.execute(sql, (tenant_id, last)).fetchall():
        yield from rows
        last = int(rows[-1][position])
