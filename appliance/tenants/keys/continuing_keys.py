"""What goes on working after a key is revoked: keys that it or keys below it issued, and that do not depend on it.

Keys of service accounts depend on their account alone, whoever issued them, and adopted keys on whoever adopted them.
"""

from collections.abc import Iterable, Mapping, Sequence

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.tenants.models import ApiKey

from . import lineage

_BY_KEY = ApiKey.created_by.startswith("key:") | ApiKey.issuer.startswith("key:")
_RESTING = ("", lineage.ACCOUNT_DISABLED, lineage.ISSUER_DISABLED)
"""Reasons for which a key does not work now, and works again later."""


def list_continuing(scope: TenantScope, rows: Sequence[ApiKey]) -> dict[str, list[ApiKey]]:
    """By the id of each of these keys, the keys that go on working without it, oldest first; keys without any are left out.

    Counted as issued by a key are keys that it created, rotated or issued before it was rotated itself, and what these issued.
    """
    below = _issued_by_keys(scope)
    reachable = {row.id: ids for row in rows if (ids := _reach(row, below))}
    if not reachable:
        return {}
    candidates, issuers = set[str]().union(*reachable.values()), lineage.load_issuers(scope)
    unrevoked = ApiKey.select().where((ApiKey.tenant_id == scope.tenant_id) & ApiKey.revoked_at.is_null() & _BY_KEY)
    authorities = [
        lineage.build_authority(row, issuers)
        for row in unrevoked.order_by(ApiKey.id)
        if row.id in candidates and lineage.is_alive(row)
    ]
    alive = [each for each in authorities if each.ended in _RESTING]
    result = {
        key_id: [each.row for each in alive if each.row.id in ids and key_id not in {key.id for key in each.chain}]
        for key_id, ids in reachable.items()
    }
    return {key_id: continuing for key_id, continuing in result.items() if continuing}


def _issued_by_keys(scope: TenantScope) -> Mapping[str, set[str]]:
    """The ids of the keys that each key of the tenant has created or is the issuer of, also of those that have ended."""
    query = ApiKey.select(ApiKey.id, ApiKey.created_by, ApiKey.issuer).where((ApiKey.tenant_id == scope.tenant_id) & _BY_KEY)
    below: dict[str, set[str]] = {}
    for key_id, *actors in query.tuples():
        for actor in actors:
            if actor.startswith("key:"):
                below.setdefault(actor.removeprefix("key:"), set()).add(key_id)
    return below


def _reach(row: ApiKey, below: Mapping[str, set[str]]) -> set[str]:
    """The ids of all keys below a key and below those that it has replaced, whether or not they still depend on it."""
    if not below:
        return set()
    visited = set[str]()
    waiting = {row.id, *_replaced_by(row)}
    while waiting:
        visited |= waiting
        waiting = set().union(*(below.get(key_id, ()) for key_id in waiting)) - visited
    return visited - {row.id}


def _replaced_by(row: ApiKey) -> Iterable[str]:
    """The ids of the keys that a key has replaced by rotations, the latest first."""
    replaced: list[str] = []
    before = row.rotated_from
    while before and before not in replaced:
        replaced.append(before)
        rows = db.rows("SELECT rotated_from FROM api_key WHERE tenant_id = ? AND id = ?", (row.tenant_id, before))
        before = rows[0][0] if rows else None
    return replaced
