"""Which names are held for the whole appliance, by whom, and which were given up lately; all inside a write."""

from collections.abc import Iterable

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists
from appliance.core.scope import TenantScope

from .models import DomainRow

REST_MS = 30 * 86_400_000
NOBODY = ""  # the tenant of a tombstone whose tenant is gone

TAKEN = (
    "this host name is not free: it is in use on this appliance or was given up within the last 30 days; "
    "if it is yours, ask the operator to release it"
)  # fmt: skip


def refuse_taken(scope: TenantScope, names: Iterable[str]) -> None:
    """AlreadyExists when another tenant holds one of the names, or gave it up within the last 30 days; never says who."""
    since = clock.now_ms() - REST_MS
    for name in names:
        held = db.rows("SELECT 1 FROM domain_name WHERE name = ? AND tenant_id <> ?", (name, scope.tenant_id))
        resting = db.rows(
            "SELECT 1 FROM domain_tombstone WHERE name = ? AND released_by <> ? AND released_at > ?", (name, scope.tenant_id, since)
        )
        if held or resting:
            raise AlreadyExists(TAKEN, pointer="/host")


def needs_fresh_proof(scope: TenantScope, names: Iterable[str]) -> bool:
    """Whether another tenant has had one of the names: DNS may still lead here, so that only a new TXT record proves anything."""
    return any(
        db.rows("SELECT 1 FROM domain_tombstone WHERE name = ? AND released_by <> ?", (name, scope.tenant_id)) for name in names
    )


def is_held(scope: TenantScope, host: str) -> bool:
    """Whether the tenant holds the names of this domain."""
    return bool(db.rows("SELECT 1 FROM domain_name WHERE name = ? AND tenant_id = ?", (host, scope.tenant_id)))


def hold(scope: TenantScope, row: DomainRow) -> None:
    """Make the names of a proven domain this tenant's for the whole appliance; AlreadyExists when another was quicker."""
    names = row.names
    refuse_taken(scope, names)
    for name in names:
        _refuse_old_proof(scope, row, name)
        db.execute(
            "INSERT INTO domain_name (name, tenant_id, host) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING",
            (name, scope.tenant_id, row.host),
        )
        holder = db.rows("SELECT tenant_id, host FROM domain_name WHERE name = ?", (name,))[0]
        if holder != (scope.tenant_id, row.host):
            raise AlreadyExists(TAKEN, pointer="/host")
        db.execute("DELETE FROM domain_tombstone WHERE name = ?", (name,))


def _refuse_old_proof(scope: TenantScope, row: DomainRow, name: str) -> None:
    """A name that another tenant has had takes a TXT record of a claim that was made afterwards, or the operator's word."""
    before = db.rows("SELECT released_at FROM domain_tombstone WHERE name = ? AND released_by <> ?", (name, scope.tenant_id))
    if row.method != "operator" and any(row.method != "txt" or row.created_at <= released for (released,) in before):
        raise AlreadyExists("this host name has been used here before: release this claim, and claim it anew by the method txt")


def release(scope: TenantScope, host: str) -> bool:
    """Give up the names of a domain: they are not served any more and rest for 30 days.  Whether there were any."""
    names = db.rows("SELECT name FROM domain_name WHERE tenant_id = ? AND host = ?", (scope.tenant_id, host))
    for (name,) in names:
        bury(name, scope.tenant_id)
    db.execute("DELETE FROM domain_name WHERE tenant_id = ? AND host = ?", (scope.tenant_id, host))
    return bool(names)


def bury(name: str, tenant_id: str) -> None:
    db.execute(
        "INSERT INTO domain_tombstone (name, released_by, released_at) VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET released_by = excluded.released_by, released_at = excluded.released_at",
        (name, tenant_id, clock.now_ms()),
    )


def lift(name: str) -> bool:
    """Let anybody claim the name who proves it; whether it rested."""
    return db.execute("DELETE FROM domain_tombstone WHERE name = ?", (name,)) > 0


def names_of(scope: TenantScope) -> list[str]:
    """Every name that the tenant holds or gave up."""
    held = db.rows("SELECT name FROM domain_name WHERE tenant_id = ?", (scope.tenant_id,))
    given_up = db.rows("SELECT name FROM domain_tombstone WHERE released_by = ?", (scope.tenant_id,))
    return [str(name) for (name,) in (*held, *given_up)]


def give_back(scope: TenantScope, names: Iterable[str]) -> None:
    """Inside the emptying of a tenant that stays, after `forget_tenant`: its names are its own to take back."""
    for name in names:
        db.execute(
            "UPDATE domain_tombstone SET released_by = ? WHERE name = ? AND released_by = ?", (scope.tenant_id, name, NOBODY)
        )


def forget_tenant(scope: TenantScope) -> None:
    """Inside the deletion of a tenant: its names rest like any other, and are nobody's to take back early."""
    for (name,) in db.rows("SELECT name FROM domain_name WHERE tenant_id = ?", (scope.tenant_id,)):
        bury(name, NOBODY)
    db.execute("UPDATE domain_tombstone SET released_by = ? WHERE released_by = ?", (NOBODY, scope.tenant_id))
