"""Adoption: someone becomes the new issuer of an API key, so that it keeps working when the earlier issuer leaves."""

from appliance.core.database import db
from appliance.core.errors import Conflict, PolicyDenied
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants.grants import confirmations
from appliance.tenants.grants.confirmations import Confirmation
from appliance.tenants.models import ApiKey

from . import key_limits, keys, lineage


def adopt_key(scope: TenantScope, key_id: str, account: str = "") -> ApiKey:
    """Become the issuer of a key, which keeps its text and scopes; keys that it issued keep working as well.

    The issuer is the service account `account` (`service:…`) if there is one, of which the caller has checked that it may have
    this key.
    An adopting key limits the adopted key to its own rate and expiry.  ScopeMissing if the key has more scopes than the actor,
    PolicyDenied if the actor descends from it, ValidationFailed if it is used from addresses that the actor may not use, Conflict
    if it is revoked or has expired.
    """

    def adopt() -> ApiKey:
        row = keys.get_key(scope, key_id)
        if not lineage.is_alive(row):
            raise Conflict("this key is revoked or has expired; issue a new one")
        if not account and lineage.account_in(row.issuer):
            raise Conflict(
                "this key belongs to a service account and depends on no person, so it needs no adoption; to change what it may "
                "do, change the service account"
            )
        if scope.actor == f"key:{row.id}":
            raise Conflict("a key cannot adopt itself; ask an owner to adopt it in the console")
        if scope.has_agent_key and row.kind != "agent":
            raise PolicyDenied("an agent key cannot adopt a service key; ask an owner to adopt it in the console")
        key_limits.check_not_wider(scope, row.scopes)
        key_limits.check_no_descendant(scope, row, "adopt")
        key_limits.check_not_beside(scope, row, "move")
        bounds = key_limits.find_limits(scope)
        key_limits.limit_transferred(bounds, row, "adopt")
        if account:
            key_limits.limit_quota(bounds, row)
        before, row.issuer, row.orphaned_at, row.orphan_until = row.issuer, account or scope.actor, None, None
        row.save()
        confirmations.withdraw_open(scope, "key", row.id)
        audit.record(scope, "key.adopt", row.id, {"name": row.name, "from": before, "to": row.issuer})
        db.after_commit(lineage.clear_cache)
        return row

    return db.write(adopt)


def decide_key(scope: TenantScope, decided: Confirmation) -> None:
    """Inside the write of a decision about a key: the deciding owner adopts it, or it is revoked."""
    if decided.state == "confirmed":
        adopt_key(scope, decided.subject)
    elif decided.state == "refused":
        keys.revoke_key(scope, decided.subject)
