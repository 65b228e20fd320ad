"""Closed tenants: nobody sees them, while they are deleted or imported in many short writes.

Whoever imports one renews the time at which it was closed.  If nobody does, that process is gone, and what is left is deleted.
"""

from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.sentences import Sentence

from .models import Tenant
from .service import delete_closed, list_closed

LEFT_MS = 30_000
"""How long nobody works on a closed tenant that was left by a process."""


def insert_closed(tenant_id: str, name: str, kind: str) -> int:
    """Inside a write: insert a tenant that nobody sees until `reveal`; returns the time at which it was closed."""
    now = clock.now_ms()
    Tenant.insert(id=tenant_id, name=name, kind=kind, created_at=now, closed_at=now).execute()
    return now


def renew(tenant_id: str, closed_at: int) -> int:
    """Inside a write on a closed tenant: go on with it; returns the new time.  Conflict if another process has taken it over."""
    now = clock.now_ms()
    _update(tenant_id, closed_at, now)
    return now


def reveal(tenant_id: str, closed_at: int) -> None:
    """Inside a write: from now on the tenant is there.  Conflict as for `renew`."""
    _update(tenant_id, closed_at, None)


def let_go(tenant_id: str, closed_at: int) -> None:
    """Inside a write: leave the tenant to whoever deletes what is left, at once.  Conflict as for `renew`."""
    _update(tenant_id, closed_at, 0)


def _update(tenant_id: str, closed_at: int, new: int | None) -> None:
    """The time is also a fence: it is only changed by who knows the last one."""
    if not Tenant.update(closed_at=new).where((Tenant.id == tenant_id) & (Tenant.closed_at == closed_at)).execute():
        raise Conflict(Sentence(
            "the import of the tenant %(tenant_id)s stood still for so long that another process has begun to remove it; "
            "start it again", tenant_id=repr(tenant_id),
        ))


def delete_left() -> None:
    """Delete what processes that are gone have left of closed tenants."""
    for tenant_id in list_closed():
        delete_if_left(tenant_id)


def delete_if_left(tenant_id: str) -> bool:
    """Delete a closed tenant on which nobody works; whether there is no closed tenant of this id any more."""
    row: Tenant | None = Tenant.get_or_none((Tenant.id == tenant_id) & Tenant.closed_at.is_null(False))
    if row is None:
        return True
    if row.closed_at > clock.now_ms() - LEFT_MS:
        return False
    try:
        db.write(partial(renew, tenant_id, row.closed_at))
    except Conflict:  # another process was faster
        return False
    delete_closed(tenant_id)
    return True
