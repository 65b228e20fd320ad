"""Publishes versions with checks: check the preview, serve the version, check it live, and switch back if a check fails.

The publication is a row (see `publications`), so another process continues after a crash. Rollback, unpublishing, and
publishing without checks stay single writes. A publication that finds another version served than it expects ends as
`overtaken` and changes nothing.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, Detail
from appliance.core.leases import OrphanFinder
from appliance.core.pools import SMOKE, open_pool
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit, webhooks
from appliance.webapps import changes, versions
from appliance.webapps.models import WebAppRow
from appliance.webapps.records import Version
from appliance.webapps.service import WebApps

from . import publications, served_grants
from .publications import PHASES, Claim, Publication
from .smoke import Check, CheckResponse, load_checks, to_result

log = logging.getLogger(__name__)

MOST_CLAIMS = 3
MOST_RESUMED = 100
# Requests a page as a visitor would: (scope, app, version or None for the published one, check).
Probe = Callable[[TenantScope, str, int | None, Check], CheckResponse]


@dataclass(frozen=True)
class Started:
    """The published version, or the running publication and a future that ends with it."""

    version: Version | None = None
    future: "Future[None] | None" = None


class Publisher:
    """Publishes versions; `instance` names this process, `is_alive` tells whether another process is alive."""

    def __init__(self, webapps: WebApps, instance: str, is_alive: Callable[[str], bool]) -> None:
        self._webapps = webapps
        self._instance = instance
        self._probe: Probe | None = None
        self._threads = open_pool(SMOKE)
        self._running: dict[tuple[str, str, int], Future[None]] = {}
        self._orphans = OrphanFinder(publications.LEASES, instance, is_alive, self._running.__contains__)
        self._lock = Lock()
        self._stopping = Event()

    def set_probe(self, probe: Probe) -> None:
        """Run checks through `probe`."""
        self._probe = probe

    def stop(self) -> None:
        """Finish the current check; other processes continue with what remains."""
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    # -- verbs

    def publish_version(
        self, scope: TenantScope, app_id: str, number: int, *, if_current: int | None = None,
        also: Callable[[], None] | None = None,
    ) -> Started:  # fmt: skip
        """Publish this version: at once if it has no checks, otherwise when they have passed.

        `also` is called in the same transaction, unless the version is already published or being published. Conflict when the
        published version is not `if_current` (0: none), the version is not ready, or another is being published.
        """

        def start() -> Version | Claim | None:
            row, app = versions.get_row(scope, app_id, number), scope.get(WebAppRow, id=app_id)
            if row.settings.get("smoke") and publications.is_running(scope, app_id, number):
                return None
            if app.published_version == number and if_current in (None, number) and app.allowed_until is None:
                return self._webapps.get_version(scope, app_id, number)
            if also is not None:
                also()
            if not row.settings.get("smoke"):
                return self._webapps.publish_version(scope, app_id, number, if_current=if_current)
            self._webapps.check_publishable(scope, app_id, number, if_current)
            claim = publications.start(scope, app, row, self._instance)
            audit.record(scope, "webapp.check", app_id, {"version": number, "previous": app.published_version})
            return claim

        started = db.write(start)
        if isinstance(started, Version):
            return Started(started)
        return Started(future=self._submit(started) if started else self._running.get((scope.tenant_id, app_id, number)))

    def get_publication(self, scope: TenantScope, app_id: str, number: int) -> Publication:
        """The latest publication of a version with checks; NotFound."""
        return publications.get_publication(scope, app_id, number)

    def list_publications(self, scope: TenantScope, app_id: str, numbers: list[int]) -> dict[int, Publication]:
        """The publications of these versions that exist."""
        return publications.list_publications(scope, app_id, numbers)

    def get_published(self, scope: TenantScope, app_id: str, number: int) -> Version:
        """The version after a successful publication; Conflict with the failed checks, or when another version was published in
        the meantime."""
        publication = publications.get_publication(scope, app_id, number)
        if publication.state != "published":
            failed = [check for check in publication.checks if check["outcome"] == "failed"]
            details = [
                Detail(
                    "/smoke",
                    "smoke_failed",
                    Sentence(
                        "%(method)s %(path)s: %(problem)s", method=check["method"], path=check["path"], problem=check["problem"]
                    ),
                )
                for check in failed
            ]
            raise Conflict(publication.reason or Sentence("the publication is %(state)s", state=publication.state), details=details)
        return self._webapps.get_version(scope, app_id, number)

    def find_published(self, scope: TenantScope, app_id: str, number: int) -> Version | None:
        """The published version; None while its checks run.

        Raises Conflict like `published`.
        """
        if not versions.get_row(scope, app_id, number).settings.get("smoke"):
            return self._webapps.get_version(scope, app_id, number)
        if publications.is_running(scope, app_id, number):
            return None
        return self.get_published(scope, app_id, number)

    def resume(self) -> int:
        """Continue publications of processes that are gone; returns how many."""
        if self._probe is None or self._stopping.is_set():
            return 0
        resumed = 0
        for lost in self._orphans.find(clock.now_ms(), MOST_RESUMED):
            claim = db.write(partial(publications.claim, lost, self._instance))
            if claim is not None:
                self._submit(claim)
                resumed += 1
        return resumed

    @staticmethod
    def next_due() -> int | None:
        """0, a time in the past, while any publication is in progress: its process may die. None otherwise."""
        return 0 if publications.LEASES.is_any_running() else None

    # -- running a publication

    def _submit(self, claim: Claim) -> "Future[None]":
        key = (claim.tenant_id, claim.app, claim.number)
        with self._lock:
            try:
                future = self._running[key] = self._threads.submit(self._run, claim)
            except RuntimeError:  # stopped in the meantime: the next start continues from the row
                future = Future()
                future.set_result(None)
                return future
        future.add_done_callback(lambda _: self._forget(key, future))
        return future

    def _forget(self, key: tuple[str, str, int], future: "Future[None]") -> None:
        with self._lock:
            if self._running.get(key) is future:
                del self._running[key]

    def _run(self, claim: Claim) -> None:
        """Run phase after phase while the claim is current."""
        try:
            while self._step(claim):
                pass
        except Exception:
            log.exception("a publication failed unexpectedly; it continues when its lease expires")

    def _step(self, claim: Claim) -> bool:
        """Run the checks of the current phase and act on the results; returns whether there is more to do."""
        row = publications.find_claimed(claim)
        probe = self._probe
        if row is None or probe is None or self._stopping.is_set():
            return False
        if row.claims > MOST_CLAIMS:
            return db.write(partial(self._abort, claim, f"it could not be checked in {MOST_CLAIMS} attempts"))
        settings = versions.get_row(claim.scope, claim.app, claim.number).settings
        if row.state == "switched":
            changes.notify_here(claim.scope, claim.app)
        for check in load_checks(settings["smoke"]):
            if self._stopping.is_set():
                return False
            response = probe(claim.scope, claim.app, None if row.state == "switched" else claim.number, check)
            if self._stopping.is_set():  # the appliance is stopping, so the response may not be valid
                return False
            result = to_result(PHASES[row.state], check, response)
            if not db.write(partial(self._save_check, claim, result)):
                return False
            if result["outcome"] == "failed":
                where = "as a preview" if row.state == "checking" else "once it was published"
                return db.write(partial(self._abort, claim, f"{check.method} {check.path} {result['problem']}, {where}"))
        return db.write(partial(self._complete_phase, claim))

    def _save_check(self, claim: Claim, result: dict[str, object]) -> bool:
        row = publications.find_claimed(claim)
        if row is not None:
            publications.update(claim, checks=[*row.checks, result])
        return row is not None

    def _complete_phase(self, claim: Claim) -> bool:
        """Every check of the phase passed: serve the version, or finish the publication."""
        row = publications.find_claimed(claim)
        if row is None or self._is_overtaken(claim, row.previous if row.state == "checking" else claim.number):
            return False
        data = {"version": claim.number, "previous": row.previous or None}
        if row.state == "checking":
            if not served_grants.is_allowed(claim.scope, claim.app, claim.number):
                return self._abort(claim, "an owner has withdrawn the permissions of its routes")
            self._webapps.serve_version(claim.scope, claim.app, claim.number)
            publications.update(claim, state="switched")
            audit.record(claim.scope, "webapp.publish", claim.app, data)
            return True
        publications.finish(claim, "published")
        webhooks.emit(claim.scope, "webapp.published", lambda: {"webapp": claim.app, **data})
        return False

    def _abort(self, claim: Claim, reason: str) -> bool:
        """A check failed: keep or restore the previous version."""
        row = publications.find_claimed(claim)
        if row is None or self._is_overtaken(claim, row.previous if row.state == "checking" else claim.number):
            return False
        if row.state == "switched":
            self._webapps.restore_version(claim.scope, claim.app, row.previous, (claim.number, row.before_at))
            publications.finish(claim, "switched_back", f"version {claim.number} was switched back: {reason}")
        else:
            publications.finish(claim, "refused", f"version {claim.number} was not published: {reason}")
        state = "switched_back" if row.state == "switched" else "refused"
        data = {"version": claim.number, "previous": row.previous or None, "state": state, "reason": reason}
        audit.record(claim.scope, "webapp.publish_failed", claim.app, data)
        webhooks.emit(claim.scope, "webapp.publish_failed", lambda: {"webapp": claim.app, **data})
        return False

    def _is_overtaken(self, claim: Claim, expected: int) -> bool:
        """Whether someone else changed what is served; then that stays, and this publication ends."""
        served = self._webapps.published_number(claim.scope, claim.app)
        if served == expected:
            return False
        current = f"version {served} is" if served else "nothing is"
        publications.finish(claim, "overtaken", f"{current} published in the meantime; version {claim.number} was not changed")
        return True
