"""Writes refused passwords to the audit trails of the tenants that the login belongs to, or to that of the appliance."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from appliance.core.database import db
from appliance.core.networks import network_of
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants.trails import record_for_appliance

from .counts import Counts, MemoryCounts
from .refused_tries import RefusedTries

_MEMBERSHIPS = """
SELECT p.id, m.tenant_id FROM person AS p LEFT JOIN membership AS m ON m.user_id = p.id WHERE p.login = ? ORDER BY m.tenant_id
"""
UNKNOWN = "unknown login"


class RefusedPasswords:
    """Counted by login and network, those of unknown logins by network alone, for all processes together."""

    def __init__(self, open_counts: Callable[[str], Counts] = MemoryCounts) -> None:
        self._tries = RefusedTries(open_counts("refused passwords"))

    def record(self, login: str, address: str) -> None:
        """Record a refused password."""
        network, is_known = network_of(address), bool(db.rows("SELECT 1 FROM person WHERE login = ?", (login,)))
        if times := self._tries.count((login if is_known else "", network)):
            record_refusal(login, {"network": network, "times_today": times})


def record_refusal(login: str, details: Mapping[str, Any]) -> None:
    """Record a refused sign-in in every tenant of the login; without a tenant or an account, in the appliance's trail.

    An unknown login is not written down: people type passwords into that field.
    """
    rows = db.rows(_MEMBERSHIPS, (login,))
    for user_id, tenant_id in rows:
        fields = {"login": login, **details}
        if tenant_id is None:
            db.submit(partial(record_for_appliance, "sign_in.refuse", user_id, fields))
        else:
            db.submit(partial(audit.record, TenantScope(tenant_id, "system"), "sign_in.refuse", user_id, fields))
    if not rows:
        db.submit(partial(record_for_appliance, "sign_in.refuse", UNKNOWN, dict(details)))
