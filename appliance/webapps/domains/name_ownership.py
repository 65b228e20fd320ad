"""Which tenant holds which host names, and which names were released recently. Everything runs inside a write."""

from collections.abc import Iterable

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists
from appliance.core.scope import TenantScope

from .models import DomainRow

RELEASE_PERIOD_MS = 30 * 86_400_000
NOBODY = ""  # the `released_by` of a tombstone whose tenant was deleted

NOT_AVAILABLE = (
    "this host name is not available: it is in use on this appliance or was released within the last 30 days; "
    "if it is yours, ask the operator to release it"
)  # fmt: skip


def check_available(scope: TenantScope, names: Iterable[str]) -> None:
    """AlreadyExists when another tenant holds one of the names or released it within the last 30 days; does not say who."""
    since = clock.now_ms() - RELEASE_PERIOD_MS
    for name in names:
        holders = db.rows("SELECT 1 FROM domain_name WHERE name = ? AND tenant_id <> ?", (name, scope.tenant_id))
        tombstones = db.rows(
            "SELECT 1 FROM domain_tombstone WHERE name = ? AND released_by <> ? AND released_at > ?", (name, scope.tenant_id, since)
        )
        if holders or tombstones:
            raise AlreadyExists(NOT_AVAILABLE, pointer="/host")


def needs_new_txt_record(scope: TenantScope, names: Iterable[str]) -> bool:
    """Whether another tenant has held one of the names. Its DNS may still point here, so only a new TXT record proves
    ownership."""
    return any(
        db.rows("SELECT 1 FROM domain_tombstone WHERE name = ? AND released_by <> ?", (name, scope.tenant_id)) for name in names
    )


def is_held(scope: TenantScope, host: str) -> bool:
    """Whether the tenant holds the names of this domain."""
    return bool(db.rows("SELECT 1 FROM domain_name WHERE name = ? AND tenant_id = ?", (host, scope.tenant_id)))


def acquire(scope: TenantScope, row: DomainRow) -> None:
    """Make the names of a verified domain belong to this tenant; AlreadyExists when another tenant was faster."""
    names = row.names
    check_available(scope, names)
    for name in names:
        _check_proof_is_new(scope, row, name)
        db.execute(
            "INSERT INTO domain_name (name, tenant_id, host) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING",
            (name, scope.tenant_id, row.host),
        )
        holder = db.rows("SELECT tenant_id, host FROM domain_name WHERE name = ?", (name,))[0]
        if holder != (scope.tenant_id, row.host):
            raise AlreadyExists(NOT_AVAILABLE, pointer="/host")
        db.execute("DELETE FROM domain_tombstone WHERE name = ?", (name,))


def _check_proof_is_new(scope: TenantScope, row: DomainRow, name: str) -> None:
    """A name previously held by another tenant needs a TXT record of a claim made since then, or the operator's approval."""
    releases = db.rows("SELECT released_at FROM domain_tombstone WHERE name = ? AND released_by <> ?", (name, scope.tenant_id))
    if row.method != "operator" and any(row.method != "txt" or row.created_at <= released for (released,) in releases):
        raise AlreadyExists("this host name was used here before: release this claim, then claim it again with the method txt")


def release(scope: TenantScope, host: str) -> bool:
    """Release the names of a domain: they stop being served, and are reserved for 30 days. Returns whether there were any."""
    names = db.rows("SELECT name FROM domain_name WHERE tenant_id = ? AND host = ?", (scope.tenant_id, host))
    for (name,) in names:
        add_tombstone(name, scope.tenant_id)
    db.execute("DELETE FROM domain_name WHERE tenant_id = ? AND host = ?", (scope.tenant_id, host))
    return bool(names)


def add_tombstone(name: str, tenant_id: str) -> None:
    db.execute(
        "INSERT INTO domain_tombstone (name, released_by, released_at) VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET released_by = excluded.released_by, released_at = excluded.released_at",
        (name, tenant_id, clock.now_ms()),
    )


def remove_tombstone(name: str) -> bool:
    """Make a released name available at once; returns whether it was reserved."""
    return db.execute("DELETE FROM domain_tombstone WHERE name = ?", (name,)) > 0


def names_of(scope: TenantScope) -> list[str]:
    """Every name that the tenant holds or has released."""
    current = db.rows("SELECT name FROM domain_name WHERE tenant_id = ?", (scope.tenant_id,))
    released = db.rows("SELECT name FROM domain_tombstone WHERE released_by = ?", (scope.tenant_id,))
    return [str(name) for (name,) in (*current, *released)]


def restore_tombstones(scope: TenantScope, names: Iterable[str]) -> None:
    """Inside the reset of a tenant, after `forget_tenant`: let the tenant claim its released names again."""
    for name in names:
        db.execute(
            "UPDATE domain_tombstone SET released_by = ? WHERE name = ? AND released_by = ?", (scope.tenant_id, name, NOBODY)
        )


def forget_tenant(scope: TenantScope) -> None:
    """Inside the deletion of a tenant: release its names, which then belong to no tenant."""
    for (name,) in db.rows("SELECT name FROM domain_name WHERE tenant_id = ?", (scope.tenant_id,)):
        add_tombstone(name, NOBODY)
    db.execute("UPDATE domain_tombstone SET released_by = ? WHERE released_by = ?", (NOBODY, scope.tenant_id))
