"""Runs file imports on background threads, and continues those of processes that are gone.

An import is a row (see `records`) and a file in the blob store: a stopped process leaves both to the others, or to its
next start.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import IO

from appliance.blobs import Blobs
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, StorageFull
from appliance.core.leases import LeaseLost, OrphanFinder
from appliance.core.pools import IMPORT, open_pool
from appliance.core.scope import TenantScope
from appliance.datapool.importing import imports, records
from appliance.datapool.importing.reading import ImportReport
from appliance.datapool.importing.records import LEASE_MS, Claim
from appliance.formats import Formats

log = logging.getLogger(__name__)

MOST_CLAIMS = 5
MOST_RESUMED = 100
INTERNAL = "an internal error occurred; see the log of the appliance"


class _Stopping(Exception):
    """The appliance is shutting down; the import continues after the last chunk elsewhere, or after the next start."""


class ImportRunner:
    """The imports that this process runs; `instance` names it, `is_alive` tells whether another process is alive."""

    def __init__(self, formats: Formats, blobs: Blobs, instance: str, is_alive: Callable[[str], bool]) -> None:
        self.instance = instance
        self._formats, self._blobs = formats, blobs
        self._threads = open_pool(IMPORT)
        self._lock = threading.Lock()
        self._active: dict[tuple[str, str], Claim] = {}
        self._renewed: dict[tuple[str, str], float] = {}
        self._stopping = threading.Event()
        self._orphans = OrphanFinder(records.LEASES, instance, is_alive, self._active.__contains__, LEASE_MS / 1500)

    def submit(self, claim: Claim) -> None:
        """Run a claimed import as soon as a thread is free."""
        with self._lock:
            self._active[claim.key], self._renewed[claim.key] = claim, clock.monotonic()
        try:
            self._threads.submit(self._run, claim)
        except RuntimeError:  # stopped in the meantime: another process, or the next start, continues from the row
            self._release(claim)

    def resume(self) -> None:
        """Renew the leases of the imports here, and continue those of processes that are gone.  Called periodically."""
        if self._stopping.is_set():
            return
        self._renew_leases()
        for lost in self._orphans.find(clock.now_ms(), MOST_RESUMED):
            claim = db.write(partial(records.claim, lost, self.instance))
            if claim is not None:
                self.submit(claim)

    @staticmethod
    def next_due() -> int | None:
        """0, a time in the past, while any import is running: its process may die.  None otherwise."""
        return 0 if records.LEASES.is_any_running() else None

    def stop(self) -> None:
        """End the imports here after their current chunk, and leave them to other processes or the next start."""
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for claim in list(self._active.values()):
            self._release(claim)

    def open_file(self, scope: TenantScope, sha256: str) -> IO[bytes]:
        """A file of the blob store in an anonymous temporary file, verified; the caller closes it."""
        file = self._formats.scratch()
        try:
            for piece in self._blobs.read_checked(scope, sha256):
                file.write(piece)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    def _renew_leases(self) -> None:
        due = clock.monotonic() - LEASE_MS / 3000
        for claim in [claim for key, claim in list(self._active.items()) if self._renewed.get(key, due) <= due]:
            try:
                db.write(partial(records.renew, claim))
                self._renewed[claim.key] = clock.monotonic()
            except LeaseLost:  # It has ended meanwhile, or another process runs it, which the next chunk will notice.
                log.debug("the import %s is not running here any more", claim.id)

    # -- running an import

    def _run(self, claim: Claim) -> None:
        try:
            self._import(claim)
        except _Stopping:
            self._release(claim)
        except LeaseLost:
            log.warning("the import %s is run by another process, or was deleted", claim.id)
        except StorageFull as error:
            self._stop_for_space(claim, error)
        except ApplianceError as error:
            self._fail(claim, error.message)
        except Exception:
            log.exception("the import of a file failed")
            self._fail(claim, INTERNAL)
        finally:
            self._forget(claim)

    def _import(self, claim: Claim) -> None:
        file_import = records.find_claimed(claim)
        if file_import is None or file_import.sha256 is None:
            raise LeaseLost(claim.id)
        if claim.claims > MOST_CLAIMS:  # Each process that tried has died of it.
            log.error("the import %s was given up after %s processes ended without progress", claim.id, MOST_CLAIMS)
            self._fail(claim, INTERNAL)
            return
        options = replace(file_import.options, format=file_import.form)
        with self.open_file(claim.scope, file_import.sha256) as file:
            progress = imports.ImportProgress(file_import.report or ImportReport(), partial(records.save, claim), self._check)
            report = imports.import_rows(claim.scope, file_import.collection, file, options, progress)  # type: ignore[arg-type]
        db.write(partial(records.finish, claim, "tried" if options.dry_run else "done", report))

    def _check(self) -> None:
        if self._stopping.is_set():
            raise _Stopping

    def _stop_for_space(self, claim: Claim, error: StorageFull) -> None:
        """Stop because of the tenant's quota.  On a full disk, nothing can be written: the import continues when there is space."""
        if db.is_full():
            db.log_failure(log, error, "an import waits until the disk has space")
        else:
            self._fail(claim, error.message)

    def _fail(self, claim: Claim, problem: str) -> None:
        self._write(claim, partial(records.fail, claim, problem))

    def _release(self, claim: Claim) -> None:
        self._write(claim, partial(records.release, claim))
        self._forget(claim)

    @staticmethod
    def _write(claim: Claim, change: Callable[[], None]) -> None:
        """Record how the import ended here; if that fails, it is continued once its lease has run out, or this process is gone."""
        try:
            db.write(change)
        except LeaseLost:
            log.warning("the import %s has been claimed by another process, or was deleted", claim.id)
        except ApplianceError as error:
            db.log_failure(log, error, "the end of the import %s could not be recorded", claim.id)

    def _forget(self, claim: Claim) -> None:
        with self._lock:
            if self._active.get(claim.key) is claim:
                del self._active[claim.key]
                self._renewed.pop(claim.key, None)
