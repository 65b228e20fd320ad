"""Secrets that were used before they had destinations: bound, suspended or kept for a while, by who stored the use of them.

It runs once for each use, at the first start after the upgrade.  What somebody stored who may set secrets now is taken over.
What goes beyond its author, or has lost them, waits for an owner; until then it is suspended, or goes on for as long as the
section `authority` of the configuration says.
"""

import logging
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import cast

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.processes.definitions import versions
from appliance.solutions import Services, Use, uses_of
from appliance.tenants import scopes_of_actor
from appliance.tenants import service as tenants
from appliance.tenants.grants import Ask, Binding, Confirmation, Destination, Kind, confirmations, secret_bindings

_log = logging.getLogger(__name__)
_WHY = {
    "wider": "Secrets have had destinations since the upgrade, and whoever stored this use may not set secrets.",
    "departed": "Secrets have had destinations since the upgrade, and whoever stored this use has left, or is not known any more.",
}


def adopt_secret_uses(services: Services) -> None:
    """Look at every use from before the upgrade that no start has looked at yet."""
    for tenant_id, kind, target in db.rows("SELECT tenant_id, kind, target FROM secret_use ORDER BY tenant_id, kind, target"):
        scope = tenants.system_scope(str(tenant_id))
        try:
            uses = uses_of(services, scope, cast(Kind, kind), str(target))
        except ApplianceError as error:
            _log.warning("the secrets of %s %s are not bound: %s", kind, target, error.message)
            continue
        author = _author_of(services, scope, cast(Kind, kind), str(target)) if uses else ""
        db.write(partial(_adopt, scope, services.config, uses, author))
        gone = (tenant_id, kind, target)
        db.write(partial(db.execute, "DELETE FROM secret_use WHERE tenant_id = ? AND kind = ? AND target = ?", gone))


def _adopt(scope: TenantScope, config: Config, uses: list[Use], author: str) -> None:
    """Inside a write: bind the uses, or ask the owners about them."""
    held, own, now = scopes_of_actor(scope, author), config.authority, clock.now_ms()
    for use in uses:
        if not secret_bindings.find_unbound(scope, [use.name], use.place):
            continue
        if held is not None and secret_bindings.SCOPE in held:
            secret_bindings.bind(scope, use.name, use.place)
            continue
        lasts = clock.parse_duration(own.confirm_departed_within if held is None else own.confirm_wider_within)
        if lasts:
            secret_bindings.bind(scope, use.name, use.place, expires_at=now + lasts)
        binding = Binding(use.name, use.place, scope.actor, now, None)
        why = "departed" if held is None else "wider"
        details = {"secret": use.name, **asdict(use.place), "author": author, "reason": why}
        details["why"] = f"{_WHY[why]} {_lasting(lasts)}"
        confirmations.ask(scope, Ask("secret", use.name, binding.id, details, now + lasts if lasts else None))


def _lasting(ms: int) -> str:
    return "It goes on until the deadline." if ms else "It is suspended until an owner allows it."


def _author_of(services: Services, scope: TenantScope, kind: Kind, target: str) -> str:
    """Who stored it as it is now; empty when nobody knows any more."""
    if kind == "process":
        row = versions.get_process(scope, target)
        return str(versions.get_version(scope, target, row.published_version or 0).created_by)
    return next(iter(_changed_by(scope, kind, target)), "")


def _changed_by(scope: TenantScope, kind: Kind, target: str) -> Iterator[str]:
    """The actors that changed it, the last one first, as the audit trail has them."""
    told = {"integration": ("create", "change"), "llm-profile": ("create", "change"), "webapp": ("publish",)}
    actions = [f"{kind}.{each}" for each in told.get(kind, ())]
    entries = [
        entry
        for action in actions
        for entry in audit.list_entries(scope, audit.AuditFilter(action=action, subject=target), PageRequest(1)).items
    ]
    yield from (entry.actor for entry in sorted(entries, key=lambda entry: -entry.seq))


def decide_secret(scope: TenantScope, decided: Confirmation) -> None:
    """What becomes of a use when an owner confirms or refuses it: a destination like every other, or none."""
    told = decided.details
    place = Destination(told["kind"], told["target"], told["digest"], told["hosts"])
    if decided.state == "confirmed":
        secret_bindings.bind(scope, told["secret"], place)
    else:
        secret_bindings.unbind_place(scope, told["secret"], place)
