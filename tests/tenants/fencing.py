"""Tenants of which nothing begins any more."""

from collections.abc import Iterator
from contextlib import contextmanager

from appliance.backups import end_work
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants import service

KINDS = ("reset", "deletion")


@contextmanager
def fenced(scope: TenantScope, how: str, *, ends_work: bool = True) -> Iterator[None]:
    """In the block, the tenant is where the first write of a reset or deletion leaves it; all batches are still to come.

    Without `ends_work`, what that write deletes at once stays, such as triggers and keys.
    """

    def begin() -> None:
        if how == "reset":
            service.begin_reset(scope, force=True)
        else:
            service.close_tenant(scope, force=True)
        if ends_work:
            end_work(scope)

    db.write(begin)
    try:
        yield
    finally:
        db.write(lambda: db.execute("UPDATE tenant SET reset_at = NULL, closed_at = NULL WHERE id = ?", (scope.tenant_id,)))
