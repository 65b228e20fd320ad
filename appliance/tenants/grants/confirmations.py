"""What waits for an owner: authority that goes beyond, or has outlived, whoever gave it, and the decision about each.

A confirmation is found by its kind, its subject (a key, a process, a secret) and the digest of what exactly is asked for, so
that a decision never covers anything else.
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
from appliance.tenants.scopes import ALL

Kind = Literal["key", "grant", "secret"]
State = Literal["open", "confirmed", "refused"]
KINDS: tuple[Kind, ...] = ("key", "grant", "secret")
MOST_OPEN = 100
"""Of one requester, all the keys that go back to them included: beyond it their oldest gives way, so that nobody can fill the
page."""
MOST_OPEN_IN_TENANT = 500
"""But for what the appliance itself asks: beyond it the oldest of the requester who has most gives way."""


@dataclass(frozen=True)
class Ask:
    """What an owner is asked to confirm: `details` are what its page shows; at `deadline` (epoch ms) it ends unless one does."""

    kind: Kind
    subject: str
    digest: str
    details: Mapping[str, Any]
    deadline: int | None = None


@dataclass(frozen=True)
class Confirmation:
    """One request to the owners, and what became of it; times in epoch milliseconds."""

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


def ask(scope: TenantScope, wanted: Ask) -> Confirmation:
    """Inside a write: have the owners decide; what was asked or decided already is answered as it is."""
    known = find(scope, wanted.kind, wanted.subject, wanted.digest)
    if known is not None:
        return known
    root = lineage.root_of(scope)
    _make_room(scope, root)
    confirmation = Confirmation(
        ids.new("cnf"), wanted.kind, wanted.subject, wanted.digest, wanted.details, scope.actor, clock.now_ms(), wanted.deadline,
        "open", None, None,
    )  # fmt: skip
    scope.insert(ConfirmationRow, **vars(confirmation), requested_root=root)
    audit.record(scope, f"{wanted.kind}.confirmation_requested", wanted.subject, _audited(confirmation))
    return confirmation


def _make_room(scope: TenantScope, root: str) -> None:
    """The appliance itself asks as often as there is cause."""
    if scope.actor == "system":
        return
    _drop_oldest(scope, root, MOST_OPEN - 1)
    counts = db.rows(
        "SELECT requested_root, count(*) FROM confirmation WHERE tenant_id = ? AND state = 'open' AND requested_root <> 'system' "
        "GROUP BY requested_root ORDER BY 2 DESC, 1",
        (scope.tenant_id,),
    )
    if sum(int(count) for _root, count in counts) >= MOST_OPEN_IN_TENANT:
        busiest, most = counts[0]
        _drop_oldest(scope, str(busiest), int(most) - 1)


def _drop_oldest(scope: TenantScope, root: str, most: int) -> None:
    """Forget what is open of this requester but for the latest `most`."""
    theirs = scope.select(ConfirmationRow).where(ConfirmationRow.requested_root == root, ConfirmationRow.state == "open")
    for row in theirs.order_by(ConfirmationRow.created_at.desc(), ConfirmationRow.id.desc()).offset(most).limit(MOST_OPEN):
        scope.delete(ConfirmationRow).where(ConfirmationRow.id == row.id).execute()


def find(scope: TenantScope, kind: Kind, subject: str, digest: str) -> Confirmation | None:
    """What was asked about exactly this, decided or not; None when nobody asked."""
    row = scope.find(ConfirmationRow, kind=kind, subject=subject, digest=digest)
    return None if row is None else _of_row(row)


def open_confirmations(scope: TenantScope) -> list[Confirmation]:
    """What waits for an owner: what ends soonest first, then the oldest."""
    rows = scope.select(ConfirmationRow).where(ConfirmationRow.state == "open")
    never = 1 << 62
    return [_of_row(row) for row in sorted(rows, key=lambda row: (row.deadline or never, row.created_at, row.id))]


def count_open(scope: TenantScope) -> int:
    """How many wait for an owner."""
    return int(scope.select(ConfirmationRow).where(ConfirmationRow.state == "open").count())


def decided_confirmations(scope: TenantScope, most: int) -> list[Confirmation]:
    """What owners decided, the latest first."""
    rows = scope.select(ConfirmationRow).where(ConfirmationRow.state != "open")
    return [_of_row(row) for row in rows.order_by(ConfirmationRow.decided_at.desc(), ConfirmationRow.id.desc()).limit(most)]


def refused_about(scope: TenantScope, kind: Kind, subject: str) -> list[Confirmation]:
    """What owners refused about a subject."""
    rows = scope.select(ConfirmationRow).where(
        ConfirmationRow.kind == kind, ConfirmationRow.subject == subject, ConfirmationRow.state == "refused"
    )
    return [_of_row(row) for row in rows]


def withdraw(scope: TenantScope, kind: Kind, subject: str, digest: str | None = None) -> int:
    """Inside a write: forget what is open about a subject that is gone or was settled otherwise; answers how many."""
    mine = scope.delete(ConfirmationRow).where(
        ConfirmationRow.kind == kind, ConfirmationRow.subject == subject, ConfirmationRow.state == "open"
    )
    return int((mine if digest is None else mine.where(ConfirmationRow.digest == digest)).execute())


def forget(scope: TenantScope, kind: Kind, subject: str, digest: str | None = None) -> None:
    """Inside a write: let the same be asked and decided anew, whatever was decided."""
    mine = scope.delete(ConfirmationRow).where(ConfirmationRow.kind == kind, ConfirmationRow.subject == subject)
    (mine if digest is None else mine.where(ConfirmationRow.digest == digest)).execute()


def forget_undenied(scope: TenantScope, kind: Kind, subject: str | None = None) -> None:
    """Inside a write: forget what is open or confirmed about a subject, or about every one; what was refused stays refused."""
    gone = scope.delete(ConfirmationRow).where(ConfirmationRow.kind == kind, ConfirmationRow.state != "refused")
    (gone if subject is None else gone.where(ConfirmationRow.subject == subject)).execute()


def may_decide(scope: TenantScope) -> bool:
    """Whether this is a signed-in owner who is one still: no key decides, whatever it holds."""
    return scope.actor.startswith("user:") and lineage.reread(scope).scopes >= ALL


class ConfirmationDecisions:
    """Carries out what owners decide: each kind has one handler, called inside the write with the decided confirmation."""

    def __init__(self) -> None:
        self._handlers: dict[Kind, Handler] = {}

    def register(self, kind: Kind, handler: Handler) -> None:
        """Have `handler` called when a confirmation of this kind is decided; what it raises undoes the decision."""
        self._handlers[kind] = handler

    def decide(self, scope: TenantScope, confirmation_id: str, confirm: bool) -> Confirmation:
        """Confirm or refuse; one that was decided the other way is decided anew.

        NotFound; ScopeMissing unless an owner is signed in.
        """

        def put() -> Confirmation:
            row = scope.find(ConfirmationRow, id=confirmation_id)
            if row is None:
                raise NotFound(
                    Sentence("there is no confirmation %(confirmation_id)s here", confirmation_id=repr(confirmation_id[:80]))
                )
            if not may_decide(scope):
                raise ScopeMissing("only an owner who is signed in to the console decides this; ask one of them")
            state: State = "confirmed" if confirm else "refused"
            if row.state == state:
                return _of_row(row)
            changed = scope.update(ConfirmationRow, state=state, decided_by=scope.actor, decided_at=clock.now_ms())
            changed.where(ConfirmationRow.id == confirmation_id).execute()
            decided = _of_row(scope.get(ConfirmationRow, id=confirmation_id))
            audit.record(scope, f"{decided.kind}.{state}", decided.subject, _audited(decided))
            if decided.kind in self._handlers:
                self._handlers[decided.kind](scope, decided)
            return decided

        return db.write(put)


def _of_row(row: ConfirmationRow) -> Confirmation:
    return Confirmation(
        row.id, row.kind, row.subject, row.digest, row.details, row.requested_by, row.created_at, row.deadline, row.state,
        row.decided_by, row.decided_at,
    )  # fmt: skip


def _audited(confirmation: Confirmation) -> Mapping[str, Any]:
    return {"confirmation": confirmation.id, "digest": confirmation.digest, **confirmation.details}
