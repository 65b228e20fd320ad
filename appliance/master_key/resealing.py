"""Seals with the current master key what earlier ones have sealed: in the background, in short writes, one process at a time.

Each value is replaced by itself, if it is still the one that was read, so that after a crash each is sealed with the old or the
new key, and both open it.  Another process, or the next start, goes through the tables again and finds what is left.
"""

import logging
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.crypto import Sealer, name_key
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from appliance.core.leases import LeaseLost, LeaseTable

from .columns import SEALED_COLUMNS
from .records import KeyRecord, MasterKeyRow, find_current, list_keys
from .values import SealedRow, list_rows

log = logging.getLogger(__name__)
LEASE_MS = 30_000
CALL_SECONDS = 2.0  # how long one call works: a process that stops waits for it
BATCH_ROWS, BATCH_BYTES = 50, 256 << 10  # of one write, milliseconds
LEASES = LeaseTable(MasterKeyRow, ("id",), lease="lease_until", fence="fence", running="resealed_at IS NULL")

Change = tuple[SealedRow, Any, Any]


class Resealer:
    """The sealing by this process; `work` is called periodically, and continues where its last call ended."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._key: str | None = None
        self._fence = 0
        self._place: tuple[int, tuple[Any, ...]] = (0, ())
        self._unreadable = 0

    def work(self) -> None:
        """Seal values for a while, if the current key is not done and no other process works on it."""
        record = self._claim_key()
        if record is None:
            return
        ends = clock.monotonic() + CALL_SECONDS
        try:
            while clock.monotonic() < ends:
                if not self._seal_page(record.id):
                    return
        except LeaseLost:
            self._key = None
            log.info("another process seals with the master key %s now", record.id)

    def next_due(self) -> int | None:
        """When there is something to do (epoch ms): in the past while the current key is not done, later while another process
        works; None when all is done."""
        record = find_current(list_keys(), clock.now_ms())
        if record is None or record.resealed_at is not None:
            return None
        return 0 if record.id == self._key else _lease_of(record.id)[1]

    def _claim_key(self) -> KeyRecord | None:
        """The current key, if this process has it and may seal with it."""
        record = find_current(list_keys(), clock.now_ms())
        if record is None or record.resealed_at is not None or record.id != self._sealer.current:
            self._key = None
            return None
        if record.id == self._key:
            return record
        if (fence := db.write(partial(_claim, record.id))) is None:
            return None
        self._key, self._fence, self._place, self._unreadable = record.id, fence, (0, ()), 0
        return record

    def _seal_page(self, current: str) -> bool:
        """Seal some rows of one column; False at the end of all."""
        number, after = self._place
        if number == len(SEALED_COLUMNS):
            self._finish(current)
            return False
        page = list_rows(SEALED_COLUMNS[number], current, after, BATCH_ROWS)
        for batch in _split(page):
            changes = [change for row in batch if (change := self._reseal(row)) is not None]
            db.write(partial(_store, (current,), self._fence, changes))
        self._place = (number, page[-1].key) if page else (number + 1, ())
        return True

    def _reseal(self, row: SealedRow) -> Change | None:
        """What is stored, and what replaces it; None if it has gone, or no key opens it."""
        stored = row.read()
        try:
            if stored is None or not len(stored):
                return None
            value, opened_with = self._sealer.open_with(row.column.read(stored), row.context)
        except ConfigInvalid:
            self._unreadable += 1
            return None
        if opened_with == self._key and self._is_named(row, stored):
            return None
        return row, stored, row.column.replace(stored, self._sealer.seal(value, row.context))

    def _is_named(self, row: SealedRow, stored: Any) -> bool:
        """Whether somebody else has sealed the value with the current key in the meantime."""
        return name_key(row.column.read(stored)) == self._key

    def _finish(self, current: str) -> None:
        changes = {"resealed_at": clock.now_ms(), "unreadable": self._unreadable}
        db.write(partial(LEASES.settle, (current,), self._fence, changes))
        self._key = None
        log.info("all values are sealed with the current master key", extra={"fields": {"key": current} | changes})


def start_again(current: str) -> None:
    """Inside a write: go through the tables once more, because something has been sealed with an earlier key since."""
    db.execute("UPDATE master_key SET resealed_at = NULL, lease_until = 0 WHERE id = ?", (current,))


def _claim(key: str) -> int | None:
    """Inside a write: the fence of a claim on the key; None if another process works on it."""
    now = clock.now_ms()
    fence, until = _lease_of(key)
    if until > now or not LEASES.claim((key,), fence, until=now + LEASE_MS):
        return None
    return fence + 1


def _lease_of(key: str) -> tuple[int, int]:
    ((fence, until),) = db.rows("SELECT fence, lease_until FROM master_key WHERE id = ?", (key,))
    return int(fence), int(until)


def _store(key: tuple[str], fence: int, changes: list[Change]) -> None:
    """Inside a write: store the values that nobody has changed since, and keep the lease.  LeaseLost."""
    LEASES.renew(key, fence, clock.now_ms() + LEASE_MS)
    count = sum(row.replace(stored, value) for row, stored, value in changes)
    if count:
        db.execute("UPDATE master_key SET resealed = resealed + ? WHERE id = ?", (count, *key))


def _split(page: list[SealedRow]) -> list[list[SealedRow]]:
    """The rows of a page in batches of a limited size, so that no write takes long."""
    batches: list[list[SealedRow]] = []
    size = BATCH_BYTES
    for row in page:
        if size + row.size > BATCH_BYTES or not batches:
            batches.append([])
            size = 0
        batches[-1].append(row)
        size += row.size
    return batches
