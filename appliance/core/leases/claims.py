"""Runs claimed rows on background threads of a process, and continues those of processes that are gone.

A row in progress is leased (see `table`): its claim is renewed while it runs, left to any process when the appliance stops, and
claimed by another process when its own is gone.  The row is the truth: a stopped process leaves everything that is needed in it.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Generic, Protocol, TypeVar

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, StorageFull
from appliance.core.pools import PoolSize, open_pool
from appliance.core.texts import mark_error

from .table import Key, Lease, LeaseLost, LeaseTable, OrphanFinder

log = logging.getLogger(__name__)
MOST_RESUMED = 100
INTERNAL = mark_error("an internal error occurred; see the log of the appliance")


class Stopping(Exception):
    """The appliance is shutting down; the work continues elsewhere, or after the next start."""


class Claim(Protocol):
    """The right to work on a row until another process claims it; `claims` counts those since the last progress."""

    @property
    def id(self) -> str: ...
    @property
    def key(self) -> Key: ...
    @property
    def fence(self) -> int: ...
    @property
    def claims(self) -> int: ...


C = TypeVar("C", bound=Claim)


class ClaimRunner(ABC, Generic[C]):
    """The claims that this process works on; `instance` names it, `is_alive` tells whether another process is alive.

    `label` names the work in the log.  The table has a column `claims`, which a claim raises: beyond `most_claims`, every process
    that tried has died of it.
    """

    leases: ClassVar[LeaseTable]
    lease_ms: ClassVar[int]
    most_claims: ClassVar[int] = 5
    pool: ClassVar[PoolSize]
    label: ClassVar[str]

    def __init__(self, instance: str, is_alive: Callable[[str], bool]) -> None:
        self.instance = instance
        self._threads = open_pool(self.pool)
        self._lock = threading.Lock()
        self._active: dict[Key, C] = {}
        self._renewed: dict[Key, float] = {}
        self._stopping = threading.Event()
        self._orphans = OrphanFinder(self.leases, instance, is_alive, self._active.__contains__, self.lease_ms / 1500)

    # -- what a kind of work defines

    @abstractmethod
    def claim(self, lost: Lease) -> C | None:
        """Inside a write: claim a row whose process is gone; None when another process was faster."""

    @abstractmethod
    def work(self, claim: C) -> None:
        """Do the work, and record its result.  LeaseLost, Stopping; ApplianceError fails the row."""

    @abstractmethod
    def record_failure(self, claim: C, error: ApplianceError) -> None:
        """Inside a write: record why the work failed.  LeaseLost."""

    # -- claims of this process

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def refuse_stopping(self) -> None:
        """Raise Stopping when the appliance is shutting down."""
        if self._stopping.is_set():
            raise Stopping

    def submit(self, claim: C) -> None:
        """Run a claim as soon as a thread is free."""
        with self._lock:
            self._active[claim.key], self._renewed[claim.key] = claim, clock.monotonic()
        try:
            self._threads.submit(self._run, claim)
        except RuntimeError:  # stopped in the meantime: another process, or the next start, continues from the row
            self._release(claim)

    def resume(self) -> None:
        """Renew the leases of the claims here, and continue those of processes that are gone.  Called periodically."""
        if self._stopping.is_set():
            return
        self._renew_leases()
        for lost in self._orphans.find(clock.now_ms(), MOST_RESUMED):
            claim = db.write(partial(self.claim, lost))
            if claim is not None:
                self.submit(claim)

    def next_due(self) -> int | None:
        """0, a time in the past, while any row is in progress: its process may die.  None otherwise."""
        return 0 if self.leases.is_any_running() else None

    def stop(self) -> None:
        """End the work here as soon as it can stop, and leave it to other processes or the next start."""
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for claim in list(self._active.values()):
            self._release(claim)

    def _renew_leases(self) -> None:
        due = clock.monotonic() - self.lease_ms / 3000
        for claim in [claim for key, claim in list(self._active.items()) if self._renewed.get(key, due) <= due]:
            try:
                db.write(partial(self._renew, claim))
                self._renewed[claim.key] = clock.monotonic()
            except LeaseLost:  # It has ended meanwhile, or another process runs it, which the next progress will notice.
                log.debug("the %s %s is not running here any more", self.label, claim.id)

    def _renew(self, claim: C) -> None:
        self.leases.renew(claim.key, claim.fence, clock.now_ms() + self.lease_ms)

    # -- running a claim

    def _run(self, claim: C) -> None:
        try:
            if claim.claims > self.most_claims:
                log.error("the %s %s was given up: %s processes ended without progress", self.label, claim.id, claim.claims - 1)
                self._fail(claim, ApplianceError(INTERNAL))
            else:
                self.work(claim)
        except Stopping:
            self._release(claim)
        except LeaseLost:
            log.warning("the %s %s is run by another process, or was deleted", self.label, claim.id)
        except StorageFull as error:
            self._stop_for_space(claim, error)
        except ApplianceError as error:
            self._fail(claim, error)
        except Exception:
            log.exception("the %s %s failed", self.label, claim.id)
            self._fail(claim, ApplianceError(INTERNAL))
        finally:
            self._forget(claim)

    def _stop_for_space(self, claim: C, error: StorageFull) -> None:
        """Stop because of a quota.  While the database has no space, nothing can be written: the work continues when it has."""
        if db.is_full():
            db.log_failure(log, error, "the %s %s waits until the disk has space", self.label, claim.id)
        else:
            self._fail(claim, error)

    def _fail(self, claim: C, error: ApplianceError) -> None:
        self._write(claim, partial(self.record_failure, claim, error))

    def _release(self, claim: C) -> None:
        self._write(claim, partial(self._leave, claim))
        self._forget(claim)

    def _leave(self, claim: C) -> None:
        """Leave the row to any process, at once, without counting this claim."""
        self.leases.update(claim.key, claim.fence, {"claims": 0})
        self.leases.release(claim.key, claim.fence)

    def _write(self, claim: C, change: Callable[[], None]) -> None:
        """Record how the work ended here; if that fails, it is continued once its lease has run out, or this process is gone."""
        try:
            db.write(change)
        except LeaseLost:
            log.warning("the %s %s has been claimed by another process, or was deleted", self.label, claim.id)
        except ApplianceError as error:
            db.log_failure(log, error, "the end of the %s %s could not be recorded", self.label, claim.id)

    def _forget(self, claim: C) -> None:
        with self._lock:
            if self._active.get(claim.key) is claim:
                del self._active[claim.key]
                self._renewed.pop(claim.key, None)
