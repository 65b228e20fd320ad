"""Writes refused passwords to the audit trails of the tenants that the login belongs to."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from appliance.core.database import db
from appliance.core.networks import network_of
from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .counts import Counts, MemoryCounts
from .refused_tries import RefusedTries

_MEMBERSHIPS = """
SELECT m.tenant_id, p.id FROM person AS p JOIN membership AS m ON m.user_id = p.id WHERE p.login = ? ORDER BY m.tenant_id
"""


class RefusedPasswords:
    """Counted by login and network, for all processes together."""

    def __init__(self, open_counts: Callable[[str], Counts] = MemoryCounts) -> None:
        self._tries = RefusedTries(open_counts("refused passwords"))

    def record(self, login: str, address: str) -> None:
        """Record a refused password; an unknown login has no trail."""
        network = network_of(address)
        if not (times := self._tries.count((login, network))):
            return
        record_refusal(login, {"network": network, "times_today": times})


def record_refusal(login: str, details: Mapping[str, Any]) -> None:
    """Record a refused sign-in in every tenant of the login, if it has an account."""
    fields = {"login": login, **details}
    for tenant_id, user_id in db.rows(_MEMBERSHIPS, (login,)):
        db.submit(partial(audit.record, TenantScope(tenant_id, "system"), "sign_in.refuse", user_id, fields))
