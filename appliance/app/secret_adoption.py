"""Migrates uses of secrets from before secrets had destinations.

It runs once per use, at the first start after the upgrade.  If the author of the use may set secrets today, the secret is bound
to that destination.  Otherwise, or if the author has left, an owner must confirm the use; until then it is suspended, or
permitted for as long as the section `authority` of the configuration says.
"""

import logging
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import ApplianceError
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.processes.definitions import versions
from appliance.solutions import SecretUse, uses_of
from appliance.tenants import scopes_of_actor
from appliance.tenants import service as tenants
from appliance.tenants.grants import (
    Binding,
    Confirmation,
    ConfirmationRequest,
    Kind,
    SecretDestination,
    confirmations,
    secret_bindings,
)
from appliance.web import Services

_log = logging.getLogger(__name__)
_WHY = {
    "wider": "Since the upgrade, secrets have destinations, and the person who set up this use may not set secrets.",
    "departed": "Since the upgrade, secrets have destinations, and the person who set up this use has left or is unknown.",
}


def adopt_secret_uses(services: Services) -> None:
    """Migrate every use from before the upgrade that has not been migrated yet."""
    for tenant_id, kind, target in secret_bindings.list_unmigrated_uses():
        scope = tenants.system_scope(tenant_id)
        try:
            uses = uses_of(services.referrers, scope, kind, target)
        except ApplianceError as error:
            _log.warning("cannot bind the secrets of %s %s: %s", kind, target, error.message)
            continue
        author = _author_of(scope, kind, target) if uses else ""
        db.write(partial(_adopt, scope, services.config, uses, author))
        secret_bindings.delete_unmigrated_use(scope, kind, target)


def _adopt(scope: TenantScope, config: Config, uses: list[SecretUse], author: str) -> None:
    """Bind the uses, or ask the owners to confirm them; runs inside a write transaction."""
    author_scopes, settings, now = scopes_of_actor(scope, author), config.authority, clock.now_ms()
    for use in uses:
        if not secret_bindings.find_unbound(scope, [use.name], use.place):
            continue
        if author_scopes is not None and secret_bindings.SCOPE in author_scopes:
            secret_bindings.bind(scope, use.name, use.place)
            continue
        lasts = clock.parse_duration(settings.confirm_departed_within if author_scopes is None else settings.confirm_wider_within)
        if lasts:
            secret_bindings.bind(scope, use.name, use.place, expires_at=now + lasts)
        binding = Binding(use.name, use.place, scope.actor, now, None)
        why = "departed" if author_scopes is None else "wider"
        details = {"secret": use.name, **asdict(use.place), "author": author, "reason": why}
        details["why"] = f"{_WHY[why]} {_describe_grace(lasts)}"
        confirmations.request_confirmation(
            scope, ConfirmationRequest("secret", use.name, binding.id, details, now + lasts if lasts else None)
        )


def _describe_grace(ms: int) -> str:
    return "It continues until the deadline." if ms else "It is suspended until an owner allows it."


def _author_of(scope: TenantScope, kind: Kind, target: str) -> str:
    """The actor who saved the current state of the target; empty when unknown."""
    if kind == "process":
        row = versions.get_process(scope, target)
        return str(versions.get_version(scope, target, row.published_version or 0).created_by)
    return next(iter(_changed_by(scope, kind, target)), "")


def _changed_by(scope: TenantScope, kind: Kind, target: str) -> Iterator[str]:
    """The actors that changed the target according to the audit trail, the latest first."""
    verbs = {"integration": ("create", "change"), "llm-profile": ("create", "change"), "webapp": ("publish",)}
    actions = [f"{kind}.{each}" for each in verbs.get(kind, ())]
    entries = [
        entry
        for action in actions
        for entry in audit.list_entries(scope, audit.AuditFilter(action=action, subject=target), PageRequest(1)).items
    ]
    yield from (entry.actor for entry in sorted(entries, key=lambda entry: -entry.seq))


def decide_secret(scope: TenantScope, confirmation: Confirmation) -> None:
    """Bind the secret to its destination when an owner confirms the use; unbind it when they refuse."""
    details = confirmation.details
    place = SecretDestination(details["kind"], details["target"], details["digest"], details["hosts"])
    if confirmation.state == "confirmed":
        secret_bindings.bind(scope, details["secret"], place)
    else:
        secret_bindings.unbind_place(scope, details["secret"], place)
