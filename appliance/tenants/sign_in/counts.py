"""Counts of attempts by key: in memory on SQLite, where one process serves, and in rows that all processes share on a server."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol, TypeVar

from peewee import BigIntegerField, BlobField

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.db import PlatformModel

T = TypeVar("T")
Key = tuple[str, ...]

MAX_TRACKED = 20_000
MAX_ROWS = 100_000


class AttemptCountRow(PlatformModel):
    """A count of attempts.  `digest` is that of its kind and key, so that no login or address is stored.  Times in ms."""

    digest = BlobField(primary_key=True)
    used = BigIntegerField()
    until = BigIntegerField()
    ends = BigIntegerField()

    class Meta:
        table_name = "attempt_count"


@dataclass
class Count:
    """The number of attempts of a key, none of which is admitted before `until`; from `ends` on, it is forgotten.  Seconds."""

    used: int = 0
    until: float = 0.0
    ends: float = 0.0


class Counts(Protocol):
    """Counts of one kind."""

    def now(self) -> float:
        """The time, in seconds, that all times of the counts refer to."""

    def read(self, key: Key) -> Count | None:
        """The count of a key; None without one, or when it has ended."""

    def change(self, keys: tuple[Key, ...], change: Callable[[list[Count], float], None]) -> None:
        """Call `change` with the counts of the keys and the time, and store what it has changed, unless it raises.

        Nobody else changes these counts meanwhile.  It gets a new count for a key without one, and may be called again.
        """


class MemoryCounts:
    """Counts in memory: those that were changed last, at most MAX_TRACKED."""

    def __init__(self, _kind: str = "") -> None:
        self._counts: dict[Key, Count] = {}
        self._lock = threading.Lock()

    def now(self) -> float:
        """See Counts."""
        return clock.monotonic()

    def read(self, key: Key) -> Count | None:
        """See Counts."""
        count = self._counts.get(key)
        return None if count is None or clock.monotonic() >= count.ends else count

    def change(self, keys: tuple[Key, ...], change: Callable[[list[Count], float], None]) -> None:
        """See Counts."""
        with self._lock:
            counts = [replace(known) if (known := self.read(key)) else Count() for key in keys]
            change(counts, clock.monotonic())
            for key, count in zip(keys, counts, strict=True):
                self._store(key, count)

    def _store(self, key: Key, count: Count) -> None:
        self._counts.pop(key, None)
        if count.ends:
            self._counts[key] = count
        if len(self._counts) > MAX_TRACKED:
            now = clock.monotonic()
            recent = {each: known for each, known in self._counts.items() if now < known.ends}
            while len(recent) > MAX_TRACKED * 3 // 4:
                del recent[next(iter(recent))]  # the least recent one
            self._counts = recent


class RowCounts:
    """Counts in rows, by the wall clock, as all processes share them."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def now(self) -> float:
        """See Counts."""
        return clock.now_ms() / 1000

    def read(self, key: Key) -> Count | None:
        """See Counts."""
        rows = db.rows("SELECT used, until, ends FROM attempt_count WHERE digest = ?", (self._digest(key),))
        count = _to_count(*rows[0]) if rows else None
        return None if count is None or self.now() >= count.ends else count

    def change(self, keys: tuple[Key, ...], change: Callable[[list[Count], float], None]) -> None:
        """See Counts."""
        digests = [self._digest(key) for key in keys]

        def update() -> None:
            now = self.now()
            counts = [_lock(digest) for digest in digests]
            counts = [count if now < count.ends else Count() for count in counts]
            change(counts, now)
            for digest, count in zip(digests, counts, strict=True):
                values = (count.used, round(count.until * 1000), round(count.ends * 1000), digest)
                db.execute("UPDATE attempt_count SET used = ?, until = ?, ends = ? WHERE digest = ?", values)

        db.write(update, is_shared=True)

    def _digest(self, key: Key) -> bytes:
        return sha256(json.dumps([self._kind, *key]).encode()).digest()


def open_counts(kind: str) -> Counts:
    """The counts of a kind, wherever all processes that serve requests find them."""
    return RowCounts(kind) if db.is_shared() else MemoryCounts(kind)


def purge(now: int) -> int:
    """Delete the rows of counts that have ended and, beyond MAX_ROWS, those that end next; returns how many.

    Counts of attempts and those of none, which only remember something for longer, do not displace each other.
    """
    if not db.rows("SELECT 1 FROM attempt_count LIMIT 1"):
        return 0

    def delete() -> int:
        ended = db.execute("DELETE FROM attempt_count WHERE ends <= ?", (now,))
        for kind in ("used > 0", "used = 0"):
            first = db.rows(f"SELECT ends FROM attempt_count WHERE {kind} ORDER BY ends DESC LIMIT 1 OFFSET ?", (MAX_ROWS,))  # noqa: S608
            if first:
                ended += db.execute(f"DELETE FROM attempt_count WHERE {kind} AND ends <= ?", first[0])  # noqa: S608
        return ended

    return db.write(delete)


def _lock(digest: bytes) -> Count:
    """Inside a write: the count of a digest, which nobody else can change before the commit."""
    sql = (
        "INSERT INTO attempt_count (digest, used, until, ends) VALUES (?, 0, 0, 0) "
        "ON CONFLICT (digest) DO UPDATE SET used = attempt_count.used RETURNING used, until, ends"
    )
    return _to_count(*db.rows(sql, (digest,))[0])


def _to_count(used: int, until: int, ends: int) -> Count:
    return Count(used, until / 1000, ends / 1000)
