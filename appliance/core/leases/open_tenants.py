"""Which tenants may begin something: not those that are being deleted, imported or reset.

The write that closes a tenant or begins its reset has no other beside it.  So whoever looks in the write that begins something
comes before that, and is cancelled by it if it has a claim, or finds the tenant closed.
"""

from appliance.core.database import db

# The first condition is that of the index; the second leaves out tenants that were reset, whose `reset_at` is negative.
_IS_FENCED = "(closed_at IS NOT NULL OR reset_at IS NOT NULL) AND (closed_at IS NOT NULL OR reset_at > 0)"
FENCED = f"SELECT id FROM tenant WHERE {_IS_FENCED}"  # noqa: S608
"""The ids of the tenants of which nothing begins, read from a small index."""
FENCED_ONE = f"SELECT 1 FROM tenant WHERE id = ? AND {_IS_FENCED}"  # noqa: S608
"""Has a row if nothing of this tenant begins."""


def is_open(tenant_id: str) -> bool:
    """Whether something of the tenant may begin; in the write that begins it, also until the commit."""
    return not db.rows(FENCED_ONE, (tenant_id,))


def fenced_tenants() -> frozenset[str]:
    """The tenants of which nothing begins."""
    return frozenset(str(tenant_id) for (tenant_id,) in db.rows(FENCED))
