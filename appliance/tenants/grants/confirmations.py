"""Confirmations: decisions by owners about keys, grants and secrets whose authority exceeds or outlives that of their creator.

A confirmation is identified by its kind, its subject (a key, a process, a secret) and the digest of the exact request, so a
decision never covers anything else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import NotFound, ScopeMissing
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants.keys import lineage
from appliance.tenants.models import ConfirmationRow
from appliance.tenants.scopes import ALL_SCOPES

Kind = Literal["key", "grant", "secret"]
State = Literal["open", "confirmed", "refused"]
KINDS: tuple[Kind, ...] = ("key", "grant", "secret")
MAX_OPEN = 100
"""Per requester, including all keys derived from them: beyond it, their oldest confirmation is dropped, so that nobody can flood
the page."""
MAX_OPEN_IN_TENANT = 500
"""Excluding the appliance's own requests: beyond it, the oldest one of the requester with the most is dropped."""


@dataclass(frozen=True)
class ConfirmationRequest:
    """A request for an owner's confirmation: the page shows `details`; at `deadline` (epoch ms) it expires undecided."""

    kind: Kind
    subject: str
    digest: str
    details: Mapping[str, Any]
    deadline: int | None = None


@dataclass(frozen=True)
class Confirmation:
    """A request to the owners and its current state; times in epoch milliseconds."""

    id: str
    kind: Kind
    subject: str
    digest: str
    details: Mapping[str, Any]
    requested_by: str
    created_at: int
    deadline: int | None
    state: State
    decided_by: str | None
    decided_at: int | None


Handler = Callable[[TenantScope, Confirmation], None]


def request_confirmation(scope: TenantScope, request: ConfirmationRequest) -> Confirmation:
    """Inside a write: request a confirmation; an existing one for the same subject and digest is returned unchanged."""
    existing = find_confirmation(scope, request.kind, request.subject, request.digest)
    if existing is not None:
        return existing
    root = lineage.root_of(scope)
    _make_room(scope, root)
    confirmation = Confirmation(
        id=ids.new("cnf"), kind=request.kind, subject=request.subject, digest=request.digest, details=request.details,
        requested_by=scope.actor, created_at=clock.now_ms(), deadline=request.deadline, state="open", decided_by=None,
        decided_at=None,
    )  # fmt: skip
    scope.insert(ConfirmationRow, **vars(confirmation), requested_root=root)
    audit.record(scope, f"{request.kind}.confirmation_requested", request.subject, _audit_details(confirmation))
    return confirmation


def _make_room(scope: TenantScope, root: str) -> None:
    """Drop old requests beyond the limits; the appliance itself is not limited."""
    if scope.actor == "system":
        return
    _drop_oldest(scope, root, MAX_OPEN - 1)
    counts = db.rows(
        "SELECT requested_root, count(*) FROM confirmation WHERE tenant_id = ? AND state = 'open' AND requested_root <> 'system' "
        "GROUP BY requested_root ORDER BY 2 DESC, 1",
        (scope.tenant_id,),
    )
    if sum(int(count) for _root, count in counts) >= MAX_OPEN_IN_TENANT:
        busiest, most = counts[0]
        _drop_oldest(scope, str(busiest), int(most) - 1)


def _drop_oldest(scope: TenantScope, root: str, keep: int) -> None:
    """Delete the requester's open confirmations except for the latest `most`."""
    open_rows = scope.select(ConfirmationRow).where(ConfirmationRow.requested_root == root, ConfirmationRow.state == "open")
    for row in open_rows.order_by(ConfirmationRow.created_at.desc(), ConfirmationRow.id.desc()).offset(keep).limit(MAX_OPEN):
        scope.delete(ConfirmationRow).where(ConfirmationRow.id == row.id).execute()


def find_confirmation(scope: TenantScope, kind: Kind, subject: str, digest: str) -> Confirmation | None:
    """The confirmation of exactly this, decided or not; None if there is none."""
    row = scope.find(ConfirmationRow, kind=kind, subject=subject, digest=digest)
    return None if row is None else _from_row(row)


def list_open(scope: TenantScope) -> list[Confirmation]:
    """Open confirmations, by deadline, then oldest first."""
    rows = scope.select(ConfirmationRow).where(ConfirmationRow.state == "open")
    never = 1 << 62
    return [_from_row(row) for row in sorted(rows, key=lambda row: (row.deadline or never, row.created_at, row.id))]


def count_open(scope: TenantScope) -> int:
    """The number of open confirmations."""
    rows = db.rows("SELECT COUNT(*) FROM confirmation WHERE tenant_id = ? AND state = 'open'", (scope.tenant_id,))
    return int(rows[0][0])


def list_decided(scope: TenantScope, most: int) -> list[Confirmation]:
    """Decided confirmations, latest first."""
    rows = scope.select(ConfirmationRow).where(ConfirmationRow.state != "open")
    return [_from_row(row) for row in rows.order_by(ConfirmationRow.decided_at.desc(), ConfirmationRow.id.desc()).limit(most)]


def list_refused(scope: TenantScope, kind: Kind, subject: str) -> list[Confirmation]:
    """Refused confirmations of a subject."""
    rows = scope.select(ConfirmationRow).where(
        ConfirmationRow.kind == kind, ConfirmationRow.subject == subject, ConfirmationRow.state == "refused"
    )
    return [_from_row(row) for row in rows]


def withdraw_open(scope: TenantScope, kind: Kind, subject: str, digest: str | None = None) -> int:
    """Inside a write: delete open confirmations of a subject that is gone or settled otherwise; returns their number."""
    query = scope.delete(ConfirmationRow).where(
        ConfirmationRow.kind == kind, ConfirmationRow.subject == subject, ConfirmationRow.state == "open"
    )
    return int((query if digest is None else query.where(ConfirmationRow.digest == digest)).execute())


def delete_confirmations(scope: TenantScope, kind: Kind, subject: str, digest: str | None = None) -> None:
    """Inside a write: delete confirmations in any state, so that the same can be requested and decided again."""
    query = scope.delete(ConfirmationRow).where(ConfirmationRow.kind == kind, ConfirmationRow.subject == subject)
    (query if digest is None else query.where(ConfirmationRow.digest == digest)).execute()


def delete_unrefused(scope: TenantScope, kind: Kind, subject: str | None = None) -> None:
    """Inside a write: delete open and confirmed confirmations of a subject, or of all subjects; refused ones stay."""
    query = scope.delete(ConfirmationRow).where(ConfirmationRow.kind == kind, ConfirmationRow.state != "refused")
    (query if subject is None else query.where(ConfirmationRow.subject == subject)).execute()


def may_decide(scope: TenantScope) -> bool:
    """Whether the scope belongs to a signed-in, current owner; API keys never decide, whatever their scopes."""
    return scope.actor.startswith("user:") and lineage.reload_scope(scope).scopes >= ALL_SCOPES


class ConfirmationDecisions:
    """Applies owners' decisions: one handler per kind, called inside the write with the decided confirmation."""

    def __init__(self) -> None:
        self._handlers: dict[Kind, Handler] = {}

    def register(self, kind: Kind, handler: Handler) -> None:
        """Call `handler` for every decided confirmation of this kind; an exception rolls the decision back."""
        self._handlers[kind] = handler

    def decide(self, scope: TenantScope, confirmation_id: str, confirm: bool) -> Confirmation:
        """Confirm or refuse; an earlier decision can be reversed.

        NotFound; ScopeMissing unless the actor is a signed-in owner.
        """

        def save() -> Confirmation:
            row = scope.find(ConfirmationRow, id=confirmation_id)
            if row is None:
                raise NotFound(
                    Sentence(
                        "there is no confirmation %(confirmation_id)s in this tenant", confirmation_id=repr(confirmation_id[:80])
                    )
                )
            if not may_decide(scope):
                raise ScopeMissing("only an owner who is signed in to the console can decide this; ask one of them")
            state: State = "confirmed" if confirm else "refused"
            if row.state == state:
                return _from_row(row)
            changed = scope.update(ConfirmationRow, state=state, decided_by=scope.actor, decided_at=clock.now_ms())
            changed.where(ConfirmationRow.id == confirmation_id).execute()
            decided = _from_row(scope.get(ConfirmationRow, id=confirmation_id))
            audit.record(scope, f"{decided.kind}.{state}", decided.subject, _audit_details(decided))
            if decided.kind in self._handlers:
                self._handlers[decided.kind](scope, decided)
            return decided

        return db.write(save)


def _from_row(row: ConfirmationRow) -> Confirmation:
    return Confirmation(
        id=row.id, kind=row.kind, subject=row.subject, digest=row.digest, details=row.details, requested_by=row.requested_by,
        created_at=row.created_at, deadline=row.deadline, state=row.state, decided_by=row.decided_by, decided_at=row.decided_at,
    )  # fmt: skip


def _audit_details(confirmation: Confirmation) -> Mapping[str, Any]:
    return {"confirmation": confirmation.id, "digest": confirmation.digest, **confirmation.details}
