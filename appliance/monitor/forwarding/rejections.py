"""What destinations have refused of audit trails for good, until an administrator acknowledges it.

A destination says how many records of a request it has refused, not which: so noted are the first and the last entry among which
they are.  An acknowledgement covers what was shown, so that what is refused meanwhile is still to be seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.scope import APPLIANCE, TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from .records import AuditRecord, Rejection

REJECTION_DAYS = 30
"""For so many days after the last one, refused records are a fault of the installation if nobody acknowledges them."""
_NOTE = """
UPDATE audit_forward SET rejected_first = CASE WHEN rejected > acknowledged THEN rejected_first ELSE ? END,
rejected_last = ?, rejected_at = ?, rejected_reason = ?, rejected = rejected + ? WHERE tenant_id = ? AND destination = ?
"""
_LIST = """
SELECT f.tenant_id, f.destination, f.rejected - f.acknowledged, f.rejected, f.rejected_first, f.rejected_last, f.rejected_at,
f.rejected_reason,
(SELECT MIN(e.at) FROM audit_entry e WHERE e.tenant_id = f.tenant_id AND e.seq BETWEEN f.rejected_first AND f.rejected_last),
(SELECT MAX(e.at) FROM audit_entry e WHERE e.tenant_id = f.tenant_id AND e.seq BETWEEN f.rejected_first AND f.rejected_last)
FROM audit_forward f WHERE f.rejected > f.acknowledged ORDER BY f.tenant_id, f.destination
"""
_ACKNOWLEDGE = """
UPDATE audit_forward SET acknowledged = ?
WHERE tenant_id = ? AND destination = ? AND acknowledged < ? AND rejected >= ?
"""


@dataclass(frozen=True)
class TrailRejections:
    """What a destination has refused of a trail and nobody has acknowledged: `count` of the records from `first_seq` to `last_seq`.

    `total` is what it has ever refused, `at` when last (epoch ms), `reason` what it said then, which may be nothing.
    `entries_from` and `entries_until` are the times of the oldest and the newest of these entries; None if retention deleted them.
    """

    tenant_id: str
    destination: str
    count: int
    total: int
    first_seq: int
    last_seq: int
    at: int
    reason: str
    entries_from: int | None
    entries_until: int | None

    @property
    def is_recent(self) -> bool:
        """Whether the last one is less than `REJECTION_DAYS` old."""
        return clock.now_ms() - self.at < REJECTION_DAYS * 86_400_000

    @property
    def export_command(self) -> str | None:
        """The command that prints the entries among which they are; None if retention deleted them."""
        if self.entries_from is None or self.entries_until is None:
            return None
        owner = "--appliance" if self.tenant_id == APPLIANCE else f"--tenant {self.tenant_id}"
        since, until = clock.rfc3339(self.entries_from), clock.rfc3339(self.entries_until + 1)
        return f"gos audit export {owner} --since {since} --until {until}"


def note_rejection(key: tuple[str, str], records: Sequence[AuditRecord], rejection: Rejection) -> None:
    """Inside a write: note that so many of these records were refused."""
    first, last = records[0].seq, records[-1].seq
    db.execute(_NOTE, (first, last, clock.now_ms(), rejection.reason, rejection.count, *key))


def list_rejections() -> list[TrailRejections]:
    """What nobody has acknowledged, by trail and destination."""
    return [TrailRejections(*row) for row in db.rows(_LIST)]


def acknowledge_rejections(tenant_id: str, destination: str, total: int, *, scope: TenantScope) -> None:
    """Acknowledge what a destination had refused of a trail when `total` were shown; NotFound if nothing is left of that.

    `scope` is that of the appliance, whose trail gets an entry.
    """
    db.write(partial(_acknowledge, tenant_id, destination, total, scope))


def _acknowledge(tenant_id: str, destination: str, total: int, scope: TenantScope) -> None:
    if not db.execute(_ACKNOWLEDGE, (total, tenant_id, destination, total, total)):
        raise NotFound(Sentence(
            "nothing that audit.%(destination)s refused of the audit trail of %(tenant)s is left to acknowledge",
            destination=destination[:40], tenant=tenant_id[:80],
        ))  # fmt: skip
    audit.record(scope, "audit.acknowledge", tenant_id, {"destination": destination, "records": total})
