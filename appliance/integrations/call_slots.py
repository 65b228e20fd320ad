"""Slots for calls of an integration: each call in progress has one, and as many calls run at once as there are slots.

On SQLite each process has its own.  On a server, they are rows that all processes share: a call that has to wait is one as well,
and whoever ends passes its slot on to the one that has waited longest, in whichever process.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Protocol

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.database.notices import notices
from appliance.core.scope import TenantScope
from appliance.integrations.circuit import Withheld

log = logging.getLogger(__name__)

MAX_WAIT = 10.0
POLL_SECONDS = 0.5
MARGIN_MS = 60_000  # how long after the deadline of its call a slot is free again that could not be returned
TOPIC = "call-slot"
_BUSY_RETRY_S = 1.0

_MINE = "tenant_id = ? AND integration_id = ?"


@dataclass(frozen=True)
class SlotRequest:
    """A call that needs a slot of an integration with `most` of them, and must have ended in `seconds`."""

    scope: TenantScope
    slug: str
    seconds: float
    most: int

    @property
    def key(self) -> tuple[str, str]:
        return self.scope.tenant_id, self.slug

    @property
    def wait_seconds(self) -> float:
        return min(MAX_WAIT, self.seconds / 2)

    def withheld(self) -> Withheld:
        """The error of a call that has waited too long."""
        message = f"{self.most} calls of {self.slug} are in progress and none finished in time; the call can be repeated."
        return Withheld(message, "busy", _BUSY_RETRY_S)


class CallSlots(Protocol):
    """The slots of all integrations."""

    def hold(self, request: SlotRequest) -> AbstractContextManager[None]:
        """Hold a slot inside the block, after waiting for one; Withheld if none becomes free in time."""


class ProcessSlots:
    """Slots of this process alone."""

    def __init__(self) -> None:
        self._running: Counter[tuple[str, str]] = Counter()
        self._freed = threading.Condition()

    @contextmanager
    def hold(self, request: SlotRequest) -> Iterator[None]:
        """See CallSlots."""
        key = request.key
        with self._freed:
            if not self._freed.wait_for(lambda: self._running[key] < request.most, request.wait_seconds):
                raise request.withheld()
            self._running[key] += 1
        try:
            yield
        finally:
            with self._freed:
                self._running[key] -= 1
                if not self._running[key]:
                    del self._running[key]
                self._freed.notify_all()


class SharedSlots:
    """Slots in rows that all processes share; `owner` is this process, `is_alive` tells whether the owner of a slot still lives."""

    def __init__(self, owner: str, is_alive: Callable[[str], bool]) -> None:
        self._owner, self._is_alive = owner, is_alive

    @contextmanager
    def hold(self, request: SlotRequest) -> Iterator[None]:
        """See CallSlots."""
        slot_id = ids.new("slt")
        until = clock.now_ms() + round((request.wait_seconds + request.seconds) * 1000) + MARGIN_MS
        try:
            if not db.write(partial(_enter, request, slot_id, self._owner, until), is_shared=True):
                self._wait(request, slot_id)
            yield
        finally:
            _return_slot(request, slot_id)

    def _wait(self, request: SlotRequest, slot_id: str) -> None:
        woken, ends = threading.Event(), clock.monotonic() + request.wait_seconds
        unsubscribe = notices.subscribe(TOPIC, lambda payload: woken.set() if payload in (None, slot_id) else None)
        try:
            while not _is_granted(request, slot_id):
                left = ends - clock.monotonic()
                if left <= 0:
                    raise request.withheld()
                if not woken.wait(min(left, POLL_SECONDS)):
                    self._free_slots_of_the_dead(request)
                woken.clear()
        finally:
            unsubscribe()

    def _free_slots_of_the_dead(self, request: SlotRequest) -> None:
        is_alive = cache(self._is_alive)
        rows = db.rows(f"SELECT id, owner FROM integration_slot WHERE {_MINE}", request.key)  # noqa: S608
        if dead := [slot_id for slot_id, owner in rows if owner != self._owner and not is_alive(owner)]:
            db.write(partial(_leave, request, dead), is_shared=True)


def open_slots(owner: str, is_alive: Callable[[str], bool]) -> CallSlots:
    """The slots that this process uses: those of all processes, if its database is on a server."""
    return SharedSlots(owner, is_alive) if db.is_shared() else ProcessSlots()


def _is_granted(request: SlotRequest, slot_id: str) -> bool:
    sql = "SELECT granted FROM integration_slot WHERE tenant_id = ? AND id = ?"
    rows = db.rows(sql, (request.scope.tenant_id, slot_id))
    return bool(rows and rows[0][0])


def _enter(request: SlotRequest, slot_id: str, owner: str, until: int) -> bool:
    """Inside a write: get a slot, or queue up for one; returns whether it is granted, also when the integration was deleted."""
    if not _lock(request):
        return True
    is_granted = _grant(request) > 0
    db.execute(
        "INSERT INTO integration_slot (tenant_id, id, integration_id, granted, created_at, owner, until) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (request.scope.tenant_id, slot_id, request.slug, int(is_granted), clock.now_ms(), owner, until),
    )
    return is_granted


def _leave(request: SlotRequest, slot_ids: list[str]) -> None:
    """Inside a write: return slots, granted or not, and pass them on."""
    if _lock(request):
        for slot_id in slot_ids:
            db.execute("DELETE FROM integration_slot WHERE tenant_id = ? AND id = ?", (request.scope.tenant_id, slot_id))
        _grant(request)


def _return_slot(request: SlotRequest, slot_id: str) -> None:
    """Return the slot of a call that has ended; its result counts, whatever happens here."""
    try:
        db.write(partial(_leave, request, [slot_id]), is_shared=True)
    except Exception as error:  # noqa: BLE001  logged by log_failure
        db.log_failure(log, error, "a slot of %s could not be returned; it is free again a minute after its deadline", request.slug)


def _lock(request: SlotRequest) -> bool:
    """Inside a write: let one at a time look at the slots of an integration and change them; False if it was deleted."""
    sql = f"SELECT 1 FROM integration WHERE tenant_id = ? AND id = ?{db.row_lock()}"  # noqa: S608  a constant
    return bool(db.rows(sql, request.key))


def _grant(request: SlotRequest) -> int:
    """Inside a write that has locked the slots: grant free ones to whoever has waited longest; returns how many remain."""
    sql = f"SELECT id, granted, until FROM integration_slot WHERE {_MINE} ORDER BY created_at, id"  # noqa: S608  a constant
    rows, now = db.rows(sql, request.key), clock.now_ms()
    if any(until <= now for _, _, until in rows):
        db.execute(f"DELETE FROM integration_slot WHERE {_MINE} AND until <= ?", (*request.key, now))  # noqa: S608
        rows = [row for row in rows if row[2] > now]
    free = request.most - len([slot_id for slot_id, granted, _ in rows if granted])
    chosen = [slot_id for slot_id, granted, _ in rows if not granted][: max(0, free)]
    for slot_id in chosen:
        db.execute("UPDATE integration_slot SET granted = 1 WHERE tenant_id = ? AND id = ?", (request.scope.tenant_id, slot_id))
        notices.notify(TOPIC, slot_id)
    return free - len(chosen)
