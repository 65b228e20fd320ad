"""Publishing with checks: the preview is asked, the version served, asked again there, and taken back when it is not well.

The publication is a row (`publications`): a process that dies leaves it, and another goes on.  Rolling back, unpublishing and
publishing a version without checks stay one write each; a publication that finds another version served than it left ends as
`overtaken` and changes nothing.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, Detail
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit, webhooks
from appliance.webapps import versions
from appliance.webapps.models import WebAppRow
from appliance.webapps.records import Version
from appliance.webapps.service import WebApps

from . import publications, served_grants
from .publications import PHASES, Claim, Publication
from .smoke import Check, Seen, checks_of, evidence

log = logging.getLogger(__name__)

AT_ONCE = 4
MOST_CLAIMS = 3
# Asks an app as a visitor would: (scope, app, version or None for what is published, check).
Probe = Callable[[TenantScope, str, int | None, Check], Seen]


@dataclass(frozen=True)
class Started:
    """A version that is published, or the publication that goes on and the future that ends with it."""

    version: Version | None = None
    over: "Future[None] | None" = None


class Publishing:
    """Publishes versions; `instance` names this process, `is_alive` tells of others."""

    def __init__(self, webapps: WebApps, instance: str, is_alive: Callable[[str], bool]) -> None:
        self._webapps = webapps
        self._instance = instance
        self._is_alive = is_alive
        self._probe: Probe | None = None
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="smoke")
        self._running: dict[tuple[str, str, int], Future[None]] = {}
        self._lock = Lock()
        self._stopping = Event()

    def check_through(self, probe: Probe) -> None:
        """Ask through `probe` from now on."""
        self._probe = probe

    def stop(self) -> None:
        """Let the check that is asked end; what is not over is taken up by the next process."""
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    # -- verbs

    def publish_version(
        self, scope: TenantScope, app_id: str, number: int, *, if_current: int | None = None,
        beside: Callable[[], None] | None = None,
    ) -> Started:  # fmt: skip
        """Serve this version from now on: at once when it has no checks, else when they have passed.

        `beside` writes in the same transaction, unless the version is published, or being published, already.
        Conflict when another than `if_current` (0: none) is published, the version is not ready, or another is being published.
        """

        def begin() -> Version | Claim | None:
            row, app = versions.get_row(scope, app_id, number), scope.get(WebAppRow, id=app_id)
            if row.settings.get("smoke") and publications.is_running(scope, app_id, number):
                return None
            if app.published_version == number and if_current in (None, number) and app.allowed_until is None:
                return self._webapps.get_version(scope, app_id, number)
            if beside is not None:
                beside()
            if not row.settings.get("smoke"):
                return self._webapps.publish_version(scope, app_id, number, if_current=if_current)
            self._webapps.check_publishable(scope, app_id, number, if_current)
            claim = publications.begin(scope, app, row, self._instance)
            audit.record(scope, "webapp.check", app_id, {"version": number, "previous": app.published_version})
            return claim

        begun = db.write(begin)
        if isinstance(begun, Version):
            return Started(begun)
        return Started(over=self._submit(begun) if begun else self._running.get((scope.tenant_id, app_id, number)))

    def get_publication(self, scope: TenantScope, app_id: str, number: int) -> Publication:
        """How the latest publishing of a version with its checks went, or goes; NotFound."""
        return publications.get_publication(scope, app_id, number)

    def list_publications(self, scope: TenantScope, app_id: str, numbers: list[int]) -> dict[int, Publication]:
        """The publications there are of these versions."""
        return publications.list_publications(scope, app_id, numbers)

    def published(self, scope: TenantScope, app_id: str, number: int) -> Version:
        """The version that its publication has led to; Conflict with the checks that failed, or with who was quicker."""
        found = publications.get_publication(scope, app_id, number)
        if found.state != "published":
            failed = [check for check in found.checks if check["outcome"] == "failed"]
            told = [
                Detail(
                    "/smoke",
                    "smoke_failed",
                    Sentence("%(method)s %(path)s: %(problem)s", method=each["method"], path=each["path"], problem=each["problem"]),
                )
                for each in failed
            ]
            raise Conflict(found.reason or Sentence("the publication is %(state)s", state=found.state), details=told)
        return self._webapps.get_version(scope, app_id, number)

    def find_published(self, scope: TenantScope, app_id: str, number: int) -> Version | None:
        """The version that a publishing which was begun has led to, whatever is served since; None while its checks run.

        Conflict as `published`.
        """
        if not versions.get_row(scope, app_id, number).settings.get("smoke"):
            return self._webapps.get_version(scope, app_id, number)
        if publications.is_running(scope, app_id, number):
            return None
        return self.published(scope, app_id, number)

    def resume(self) -> int:
        """Go on with what processes have left that are gone; answers how many."""
        if self._probe is None or self._stopping.is_set():
            return 0
        resumed = 0
        for tenant_id, app_id, number, owner, until in publications.orphans():
            if (tenant_id, app_id, number) in self._running or (self._is_alive(owner) and until > clock.now_ms()):
                continue
            scope = TenantScope(tenant_id, "system")
            found = db.write(partial(publications.claim, scope, app_id, number, (owner, until), self._instance))
            if found is not None:
                self._submit(found)
                resumed += 1
        return resumed

    # -- the way of one publication

    def _submit(self, claim: Claim) -> "Future[None]":
        key = (claim.tenant_id, claim.app, claim.number)
        with self._lock:
            try:
                over = self._running[key] = self._threads.submit(self._run, claim)
            except RuntimeError:  # stopped since it was asked for: what is recorded is taken up by the next start
                over = Future()
                over.set_result(None)
                return over
        over.add_done_callback(lambda _: self._forget(key, over))
        return over

    def _forget(self, key: tuple[str, str, int], over: "Future[None]") -> None:
        with self._lock:
            if self._running.get(key) is over:
                del self._running[key]

    def _run(self, claim: Claim) -> None:
        """A phase at a time, for as long as the claim counts."""
        try:
            while self._step(claim):
                pass
        except Exception:
            log.exception("a publication stopped; it is taken up when its lease ends")

    def _step(self, claim: Claim) -> bool:
        """Ask the checks of the phase, then do what follows; answers whether there is more to do."""
        row = publications.held(claim)
        probe = self._probe
        if row is None or probe is None or self._stopping.is_set():
            return False
        if row.claims > MOST_CLAIMS:
            return db.write(partial(self._give_up, claim, f"it could not be checked in {MOST_CLAIMS} attempts"))
        settings = versions.get_row(claim.scope, claim.app, claim.number).settings
        if row.state == "switched":
            self._webapps.tell(claim.scope, claim.app)
        for check in checks_of(settings["smoke"]):
            if self._stopping.is_set():
                return False
            seen = probe(claim.scope, claim.app, None if row.state == "switched" else claim.number, check)
            if self._stopping.is_set():  # what was seen may be of an appliance that ends
                return False
            told = evidence(PHASES[row.state], check, seen)
            if not db.write(partial(self._note, claim, told)):
                return False
            if told["outcome"] == "failed":
                where = "as a preview" if row.state == "checking" else "once it was published"
                return db.write(partial(self._give_up, claim, f"{check.method} {check.path} {told['problem']}, {where}"))
        return db.write(partial(self._pass, claim))

    def _note(self, claim: Claim, told: dict[str, object]) -> bool:
        row = publications.held(claim)
        if row is not None:
            publications.change(claim, checks=[*row.checks, told])
        return row is not None

    def _pass(self, claim: Claim) -> bool:
        """Every check of the phase has passed: serve the version, or leave it served."""
        row = publications.held(claim)
        if row is None or self._is_overtaken(claim, row.previous if row.state == "checking" else claim.number):
            return False
        told = {"version": claim.number, "previous": row.previous or None}
        if row.state == "checking":
            if not served_grants.is_allowed(claim.scope, claim.app, claim.number):
                return self._give_up(claim, "an owner has withdrawn what its routes may reach")
            self._webapps.point_to(claim.scope, claim.app, claim.number)
            publications.change(claim, state="switched")
            audit.record(claim.scope, "webapp.publish", claim.app, told)
            return True
        publications.end(claim, "published")
        webhooks.emit(claim.scope, "webapp.published", lambda: {"webapp": claim.app, **told})
        return False

    def _give_up(self, claim: Claim, reason: str) -> bool:
        """A check has failed: leave or restore what was served before."""
        row = publications.held(claim)
        if row is None or self._is_overtaken(claim, row.previous if row.state == "checking" else claim.number):
            return False
        if row.state == "switched":
            self._webapps.point_back(claim.scope, claim.app, row.previous, (claim.number, row.before_at))
            publications.end(claim, "switched_back", f"version {claim.number} was switched back: {reason}")
        else:
            publications.end(claim, "refused", f"version {claim.number} was not published: {reason}")
        state = "switched_back" if row.state == "switched" else "refused"
        told = {"version": claim.number, "previous": row.previous or None, "state": state, "reason": reason}
        audit.record(claim.scope, "webapp.publish_failed", claim.app, told)
        webhooks.emit(claim.scope, "webapp.publish_failed", lambda: {"webapp": claim.app, **told})
        return False

    def _is_overtaken(self, claim: Claim, expected: int) -> bool:
        """Whether somebody else has changed what is served; then theirs stays, and this publication has ended."""
        served = self._webapps.published_number(claim.scope, claim.app)
        if served == expected:
            return False
        now = f"version {served} is" if served else "nothing is"
        publications.end(claim, "overtaken", f"{now} published meanwhile; version {claim.number} was left alone")
        return True
