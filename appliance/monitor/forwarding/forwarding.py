"""Sends the entries of all audit trails to a destination, each at least once, in the order of its trail.

Each destination has a position in each trail.  One process at a time sends a trail there, under a lease; another continues after
the last entries that were noted as sent, so that a few may arrive twice.  Once a trail has been sent to its end, a signed
checkpoint follows, at most one in the interval.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.changes import earliest
from appliance.core.errors import ConfigInvalid
from appliance.core.leases import LeaseLost, LeaseTable
from appliance.core.scope import APPLIANCE, TenantScope, tenant_ids
from appliance.monitor import audit, metrics
from appliance.monitor.models import AuditEntry, AuditForwardRow
from appliance.monitor.signed_trails import AuditKeys, make_checkpoint

from .records import NOTHING_REJECTED, AuditRecord, Destination, RecordsRefused, Rejection, Undelivered, record_of
from .rejections import note_rejection

log = logging.getLogger(__name__)
BATCH, BATCH_BYTES = 200, 1 << 20
PAUSE_MS, MOST_PAUSE_MS, LONGEST_ASKED_MS, LEASE_MS = 10_000, 300_000, 3_600_000, 60_000
MOST_AHEAD_MS = 2 * LEASE_MS
"""No process gives itself a lease that ends later, even if its clock is a minute ahead of this one.  So a clock was set back since,
and the holder may be dead; if it lives, it notices by the fence that another has continued."""
SENT = metrics.registry.counter("gos_audit_records_sent_total", "Records of audit trails that were sent.", ("destination",))
FAILED = metrics.registry.counter(
    "gos_audit_forwarding_failures_total", "Times a destination did not take records of audit trails, which wait.", ("destination",)
)
REJECTED = metrics.registry.counter(
    "gos_audit_records_rejected_total", "Records of audit trails that a destination has refused for good.", ("destination",)
)
_FORWARDS = LeaseTable(AuditForwardRow, ("tenant_id", "destination"), lease="lease_until", fence="fence")
_TRAILS = "FROM audit_chain c LEFT JOIN audit_forward f ON f.tenant_id = c.tenant_id AND f.destination = ?"
_HAS_MORE = "c.last_seq > COALESCE(f.seq, 0)"
_DUE = f"""
SELECT c.tenant_id {_TRAILS} WHERE (COALESCE(f.lease_until, 0) <= ? OR f.lease_until > ?)
AND ({_HAS_MORE} OR (f.seq > f.checkpoint_seq AND (f.checkpoint_at <= ? OR f.checkpoint_at > ?))) ORDER BY c.tenant_id
"""
_LEASE_END = "CASE WHEN lease_until > ? THEN 0 ELSE COALESCE(lease_until, 0) END"
_NEXT_ENTRIES = f"SELECT MIN({_LEASE_END}) {_TRAILS} WHERE {_HAS_MORE}"
_NEXT_CHECKPOINT = f"""
SELECT MIN(CASE WHEN checkpoint_at > ? OR lease_end > checkpoint_at + ? THEN lease_end ELSE checkpoint_at + ? END)
FROM (SELECT checkpoint_at, {_LEASE_END} AS lease_end FROM audit_forward WHERE destination = ? AND seq > checkpoint_seq) AS ends
"""  # noqa: S608  our own words
_LAG = f"""
SELECT COUNT(*), MIN(e.at) {_TRAILS}
JOIN audit_entry e ON e.tenant_id = c.tenant_id
AND e.seq = 1 + CASE WHEN COALESCE(f.seq, 0) > c.base_seq THEN f.seq ELSE c.base_seq END
WHERE {_HAS_MORE}
"""


@dataclass(frozen=True)
class ForwardingLag:
    """How many trails have entries that were not sent, and the time of the oldest of these."""

    trails: int
    oldest_at: int | None


def read_lag(destination: str) -> ForwardingLag:
    """How far this destination is behind."""
    ((trails, oldest_at),) = db.rows(_LAG, (destination,))
    return ForwardingLag(int(trails), None if oldest_at is None else int(oldest_at))


@dataclass
class _Position:
    """How far a trail has been sent by whoever has its lease, and the hash of the last entry if it was sent now."""

    key: tuple[str, str]
    fence: int
    seq: int
    checkpoint_seq: int
    checkpoint_at: int
    last_hash: str = ""


class AuditForwarding:
    """The forwarding of this process to one destination; a checkpoint follows after `checkpoint_ms` at the earliest."""

    def __init__(self, destination: Destination, keys: AuditKeys, checkpoint_ms: int) -> None:
        self.destination = destination
        self._keys, self._checkpoint_ms = keys, checkpoint_ms
        self._failures = 0
        self._paused_at = self._paused_until = 0

    def forward(self) -> None:
        """Send what has not been sent; what the destination does not take waits for a pause, which is logged once."""
        now = clock.now_ms()
        if now < self._pause_end(now):
            return
        failure: Undelivered | None = None
        for tenant_id in self._list_due(now):
            try:
                self._forward_trail(tenant_id)
            except RecordsRefused as refused:
                failure = refused
            except Undelivered as undelivered:
                failure = undelivered
                break
        self._note_outcome(failure)

    def next_due(self) -> int | None:
        """When there will be something to send (epoch milliseconds); None if everything has been sent."""
        name, interval, now = self.destination.name, self._checkpoint_ms, clock.now_ms()
        latest = now + MOST_AHEAD_MS
        dues = [
            earliest(_NEXT_ENTRIES, params=(latest, name)),
            earliest(_NEXT_CHECKPOINT, params=(now, interval, interval, latest, name)),
        ]
        due = min((each for each in dues if each is not None), default=None)
        return None if due is None else max(due, self._pause_end(now))

    def _pause_end(self, now: int) -> int:
        """Until when the destination is left alone; a clock that was set back since does not make that longer."""
        return self._paused_until if now >= self._paused_at else 0

    def close(self) -> None:
        """Close the connection."""
        self.destination.close()

    def _list_due(self, now: int) -> list[str]:
        """The owners of trails with something to send; not tenants that are being imported or deleted, which lack entries."""
        open_tenants = {APPLIANCE, *tenant_ids()}
        due = db.rows(_DUE, (self.destination.name, now, now + MOST_AHEAD_MS, now - self._checkpoint_ms, now))
        return [tenant_id for (tenant_id,) in due if tenant_id in open_tenants]

    def _note_outcome(self, failure: Undelivered | None) -> None:
        name, address = self.destination.name, self.destination.address
        if failure is None:
            if self._failures:
                log.info("audit.%s: %s takes entries again", name, address)
            self._failures = self._paused_until = 0
            return
        if not self._failures:
            log.warning("audit.%s: %s %s; entries wait", name, address, failure)
        FAILED.inc(1, name)
        pause = min(PAUSE_MS << min(self._failures, 10), MOST_PAUSE_MS)
        self._failures += 1
        self._paused_at = clock.now_ms()
        self._paused_until = self._paused_at + max(pause, min(failure.after_ms, LONGEST_ASKED_MS))
        self.close()

    def _forward_trail(self, tenant_id: str) -> None:
        position = db.write(partial(_claim, tenant_id, self.destination.name))
        if position is None:
            return
        try:
            self.destination.begin()
            for records in _read_batches(tenant_id, position.seq):
                self._send_batch(position, records)
            self._send_checkpoint(position)
        except LeaseLost:
            log.info("another process sends the audit trail of %s to audit.%s now", *position.key)
        finally:
            db.write(partial(_FORWARDS.release, position.key, position.fence))

    def _send_batch(self, position: _Position, records: list[AuditRecord]) -> None:
        """Send records and note it; those that are refused together in ever smaller parts, as they may be too large together."""
        waiting = [records]
        while waiting:
            part = waiting.pop()
            try:
                rejection = self._send(part)
            except RecordsRefused as refused:
                if len(part) == 1:
                    raise RecordsRefused(f"{refused} to entry {part[0].seq} of {part[0].tenant_id}", refused.after_ms) from refused
                middle = len(part) // 2
                waiting += [part[middle:], part[:middle]]
                continue
            position.seq, position.last_hash = part[-1].seq, part[-1].hash
            self._note(position, part, rejection)

    def _send(self, records: list[AuditRecord]) -> Rejection:
        rejection = self.destination.send(records)
        SENT.inc(len(records) - rejection.count, self.destination.name)
        if rejection.count:
            REJECTED.inc(rejection.count, self.destination.name)
        return rejection

    def _send_checkpoint(self, position: _Position) -> None:
        """Send what vouches for the trail up to here, if entries were sent since the last one and the interval has passed."""
        now, (tenant_id, _) = clock.now_ms(), position.key
        is_early = position.checkpoint_at <= now < position.checkpoint_at + self._checkpoint_ms  # not after a clock was set back
        if position.seq <= position.checkpoint_seq or is_early:
            return
        records, rejection = list[AuditRecord](), NOTHING_REJECTED
        try:
            if last_hash := position.last_hash or _read_hash(tenant_id, position.seq):
                records = [self._make_checkpoint(position, last_hash, now)]
                rejection = self._send(records)
            position.checkpoint_seq = position.seq
        except ConfigInvalid as error:  # entries go on without
            log.warning("audit.%s: no checkpoint of %s can be signed: %s", self.destination.name, tenant_id, error.message)
        position.checkpoint_at = now
        self._note(position, records, rejection)

    def _make_checkpoint(self, position: _Position, last_hash: str, now: int) -> AuditRecord:
        """The record of a checkpoint; ConfigInvalid if this process lacks the master key of the signing key."""
        key, tenant_id = self._keys.current(), position.key[0]
        line = make_checkpoint(key, tenant_id, position.seq, last_hash).rstrip("\n")
        return AuditRecord(tenant_id, position.seq, now, "system", audit.CHECKPOINT, key.fingerprint, hash=last_hash, line=line)

    def _note(self, position: _Position, records: list[AuditRecord], rejection: Rejection) -> None:
        """Note how far the trail was sent and how many of these records were refused, and keep the lease.  LeaseLost."""
        changes = {
            "seq": position.seq, "checkpoint_seq": position.checkpoint_seq, "checkpoint_at": position.checkpoint_at,
            "lease_until": clock.now_ms() + LEASE_MS,
        }  # fmt: skip

        def write() -> None:
            _FORWARDS.update(position.key, position.fence, changes)
            if rejection.count:
                note_rejection(position.key, records, rejection)

        db.write(write)


def _claim(tenant_id: str, destination: str) -> _Position | None:
    """Inside a write: how far the trail was sent; None if another process sends it."""
    key = (tenant_id, destination)
    new = (
        "INSERT INTO audit_forward (tenant_id, destination, seq, fence, lease_until, checkpoint_seq, checkpoint_at, rejected) "
        "VALUES (?, ?, 0, 0, 0, 0, 0, 0) ON CONFLICT (tenant_id, destination) DO NOTHING"
    )
    db.execute(new, key)
    columns = "seq, fence, lease_until, checkpoint_seq, checkpoint_at"
    ((seq, fence, until, checkpoint_seq, checkpoint_at),) = db.rows(
        f"SELECT {columns} FROM audit_forward WHERE tenant_id = ? AND destination = ?", key  # noqa: S608  our own names
    )  # fmt: skip
    now = clock.now_ms()
    if now < until <= now + MOST_AHEAD_MS or not _FORWARDS.claim(key, fence, until=now + LEASE_MS):
        return None
    return _Position(key, int(fence) + 1, int(seq), int(checkpoint_seq), int(checkpoint_at))


def _read_batches(tenant_id: str, seq: int) -> Iterator[list[AuditRecord]]:
    """The records after this entry, some at a time, as whoever sends them comes along; entries made meanwhile are among them."""
    scope = TenantScope(tenant_id, "system")
    while True:
        query = scope.select(AuditEntry).where(AuditEntry.seq > seq).order_by(AuditEntry.seq).limit(BATCH)
        records, size = list[AuditRecord](), 0
        for entry in query:
            record = record_of(entry)
            size += len(record.line.encode())
            if records and size > BATCH_BYTES:
                break
            records.append(record)
        if not records:
            return
        yield records
        seq = records[-1].seq


def _read_hash(tenant_id: str, seq: int) -> str | None:
    """The hash of an entry; None if retention has deleted it."""
    row = TenantScope(tenant_id, "system").find(AuditEntry, seq=seq)
    return None if row is None else str(row.hash)
