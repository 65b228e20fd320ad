"""Adoption: someone becomes the new issuer of an API key, so that it keeps working when the earlier issuer leaves."""

import hashlib
from functools import partial

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import service
from appliance.tenants.grants import confirmations
from appliance.tenants.grants.confirmations import Confirmation, ConfirmationRequest
from appliance.tenants.models import ApiKey

from . import key_limits, keys, lineage


def adopt_key(scope: TenantScope, key_id: str) -> ApiKey:
    """Become the issuer of a key, which keeps its text and scopes; keys that it issued keep working as well.

    An adopting key limits the adopted key to its own rate and expiry.  ScopeMissing if the key has more scopes than the actor,
    PolicyDenied if the actor descends from it, ValidationFailed if it is used from addresses that the actor may not use, Conflict
    if it is revoked or has expired.
    """

    def adopt() -> ApiKey:
        row = keys.get_key(scope, key_id)
        if not lineage.is_alive(row):
            raise Conflict("this key is revoked or has expired; issue a new one")
        if scope.actor == f"key:{row.id}":
            raise Conflict("a key cannot adopt itself; ask an owner to adopt it in the console")
        if scope.has_agent_key and row.kind != "agent":
            raise PolicyDenied("an agent key cannot adopt a service key; ask an owner to adopt it in the console")
        key_limits.check_not_wider(scope, row.scopes)
        key_limits.check_no_descendant(scope, row, "adopt")
        key_limits.limit_transferred(key_limits.find_limits(scope), row, "adopt")
        before, row.issuer, row.orphaned_at, row.orphan_until = row.issuer, scope.actor, None, None
        row.save()
        confirmations.withdraw_open(scope, "key", row.id)
        audit.record(scope, "key.adopt", row.id, {"name": row.name, "from": before})
        db.after_commit(lineage.clear_cache)
        return row

    return db.write(adopt)


def decide_key(scope: TenantScope, decided: Confirmation) -> None:
    """Inside the write of a decision about a key: the deciding owner adopts it, or it is revoked."""
    if decided.state == "confirmed":
        adopt_key(scope, decided.subject)
    elif decided.state == "refused":
        keys.revoke_key(scope, decided.subject)


def request_adoptions(within_ms: int) -> int:
    """Once after the upgrade: limit keys whose issuer is already gone to this period, and ask the owners; returns their number."""
    orphans = list(ApiKey.select().where(ApiKey.orphan_until == 0).order_by(ApiKey.created_at, ApiKey.id))
    return sum(db.write(partial(_request_adoption, row.id, within_ms)) for row in orphans)


def _request_adoption(key_id: str, within_ms: int) -> bool:
    row: ApiKey | None = ApiKey.get_or_none((ApiKey.id == key_id) & (ApiKey.orphan_until == 0))
    if row is None:  # another process was faster
        return False
    now = clock.now_ms()
    is_orphan = lineage.is_alive(row) and lineage.has_lost_issuer(row)
    row.orphaned_at, row.orphan_until = (now, now + within_ms) if is_orphan else (None, None)
    row.save(only=[ApiKey.orphaned_at, ApiKey.orphan_until])
    if is_orphan:
        details = {"name": row.name, "ends_with": f"{row.prefix}…{row.last4}", "scopes": row.scopes, "issuer": row.issuer}
        scope = service.system_scope(row.tenant_id)
        confirmations.request_confirmation(scope, ConfirmationRequest("key", row.id, _digest(row), details, row.orphan_until))
    return is_orphan


def _digest(row: ApiKey) -> str:
    """What the decision covers: this key with its former issuer."""
    return hashlib.sha256(f"{row.id}/{row.issuer}".encode()).hexdigest()
