"""Database rows of publications. Every function but the readers runs inside a write.

The row stores the progress, so that any process that claims it can continue: `checking` (the preview is checked), `switched`
(the version is served and checked live), or how it ended. Every change is guarded by the fence of its claim.
"""

from dataclasses import dataclass
from typing import Any, Literal

from appliance.core import clock
from appliance.core.errors import Conflict, NotFound
from appliance.core.leases import Lease, LeaseTable
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.webapps import versions
from appliance.webapps.models import PublicationRow, VersionRow, WebAppRow

PublicationState = Literal["checking", "switched", "published", "switched_back", "refused", "overtaken"]
RUNNING = ("checking", "switched")
PHASES = {"checking": "preview", "switched": "live"}
LEASE_MS = 60_000
LEASES = LeaseTable(
    PublicationRow, ("tenant_id", "app_id", "number"), lease="lease_until", owner="owner", fence="fence",
    running="state IN ('checking', 'switched')", on_claim="claims = claims + 1",
)  # fmt: skip


@dataclass(frozen=True)
class Publication:
    """A version being published: the results of its checks, and how it ended. `previous` was served before, 0 for none."""

    app: str
    number: int
    state: PublicationState
    previous: int
    checks: tuple[dict[str, Any], ...]
    reason: str | None
    started_by: str
    started_at: int
    ended_at: int | None

    @property
    def is_running(self) -> bool:
        return self.state in RUNNING


@dataclass(frozen=True)
class Claim:
    """The right to continue a publication, until another process claims it."""

    tenant_id: str
    app: str
    number: int
    fence: int
    started_by: str

    @property
    def key(self) -> tuple[str, str, int]:
        return self.tenant_id, self.app, self.number

    @property
    def scope(self) -> TenantScope:
        """A scope in the name of the person who published."""
        return TenantScope(self.tenant_id, self.started_by)


def to_publication(row: PublicationRow) -> Publication:
    return Publication(
        app=row.app_id, number=row.number, state=row.state, previous=row.previous, checks=tuple(row.checks), reason=row.reason,
        started_by=row.started_by, started_at=row.started_at, ended_at=row.ended_at,
    )


def get_publication(scope: TenantScope, app_id: str, number: int) -> Publication:
    """The latest publication of a version with checks; NotFound."""
    versions.get_row(scope, app_id, number)
    row = scope.find(PublicationRow, app_id=app_id, number=number)
    if row is None:
        raise NotFound(
            Sentence("version %(number)s of %(app_id)s has not been published with checks", number=number, app_id=repr(app_id))
        )
    return to_publication(row)


def list_publications(scope: TenantScope, app_id: str, numbers: list[int]) -> dict[int, Publication]:
    """The publications of these versions that exist."""
    rows = scope.select(PublicationRow).where(PublicationRow.app_id == app_id, PublicationRow.number.in_(numbers))
    return {row.number: to_publication(row) for row in rows}


def is_running(scope: TenantScope, app_id: str, number: int) -> bool:
    row = scope.find(PublicationRow, app_id=app_id, number=number)
    return row is not None and row.state in RUNNING


def start(scope: TenantScope, app: WebAppRow, row: VersionRow, owner: str) -> Claim:
    """Start a publication of this version. Conflict while another one is running."""
    running = scope.select(PublicationRow).where(PublicationRow.app_id == app.id, PublicationRow.state.in_(RUNNING)).first()
    if running is not None:
        raise Conflict(Sentence("version %(number)s is being published; wait for it, or roll back", number=running.number))
    earlier = scope.find(PublicationRow, app_id=app.id, number=row.number)
    fence = 1 if earlier is None else earlier.fence + 1
    scope.delete(PublicationRow).where(PublicationRow.app_id == app.id, PublicationRow.number == row.number).execute()
    now = clock.now_ms()
    scope.insert(
        PublicationRow, app_id=app.id, number=row.number, state="checking", previous=app.published_version or 0,
        before_at=row.published_at, checks=[], started_by=scope.actor, owner=owner, fence=fence, claims=1,
        lease_until=now + LEASE_MS, started_at=now,
    )  # fmt: skip
    return Claim(scope.tenant_id, app.id, row.number, fence, scope.actor)


def claim(lost: Lease, owner: str) -> Claim | None:
    """Continue a publication whose worker is gone; the checks of its phase run again. None when another process was faster."""
    tenant_id, app_id, number = lost.key
    row = TenantScope(tenant_id, "system").find(PublicationRow, app_id=app_id, number=number, lease_until=lost.until)
    if row is None or row.state not in RUNNING:
        return None
    changes = {"checks": [check for check in row.checks if check["phase"] != PHASES[row.state]]}
    if not LEASES.claim(lost.key, lost.guard, owner=owner, until=clock.now_ms() + LEASE_MS, changes=changes):
        return None
    return Claim(tenant_id, app_id, number, lost.guard + 1, row.started_by)


def find_claimed(claim: Claim) -> PublicationRow | None:
    """The row, while this claim is the current one and the publication is running."""
    row = claim.scope.find(PublicationRow, app_id=claim.app, number=claim.number, fence=claim.fence)
    return row if row is not None and row.state in RUNNING else None


def update(claim: Claim, **changes: Any) -> None:
    """Store progress, and renew the lease. LeaseLost."""
    LEASES.renew(claim.key, claim.fence, clock.now_ms() + LEASE_MS, changes)


def finish(claim: Claim, state: PublicationState, reason: str | None = None) -> None:
    """Store how it ended. LeaseLost."""
    LEASES.settle(claim.key, claim.fence, {"state": state, "reason": reason, "ended_at": clock.now_ms()})


def versions_in_use(scope: TenantScope, app_id: str) -> set[int]:
    """The versions that a running publication may have to serve."""
    rows = scope.select(PublicationRow).where(PublicationRow.app_id == app_id, PublicationRow.state.in_(RUNNING))
    return {number for row in rows for number in (row.number, row.previous)}


def list_switched_back(scope: TenantScope, app_id: str) -> list[int]:
    """The versions that were served briefly and then switched back."""
    rows = scope.select(PublicationRow).where(PublicationRow.app_id == app_id, PublicationRow.state == "switched_back")
    return [row.number for row in rows]
