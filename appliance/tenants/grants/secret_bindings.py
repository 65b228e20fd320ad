"""Secret bindings: each secret is bound to the destinations that someone with the scope `secrets.write` chose.

A destination is an integration with its hosts, a process, the webhooks of a process, an LLM profile or a WebApp.  It is
checked when a use is stored and again when the secret is opened, so that changing a row otherwise cannot redirect a secret.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import NotFound, PolicyDenied, ScopeMissing, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants.models import SecretBindingRow
from appliance.tenants.service import is_secret_name, unseal_secret

Kind = Literal["integration", "process", "webhook", "llm-profile", "webapp"]
KINDS: tuple[Kind, ...] = ("integration", "process", "webhook", "llm-profile", "webapp")
SCOPE = "secrets.write"
MAX_BINDINGS = 1_000  # added by people and keys
_ENCRYPTED = frozenset({"https", "wss", "ldaps", "ftps", "sftp", "smtps", "imaps"})
_LABELS = {
    "integration": "the integration {0}", "process": "the process {0}", "webhook": "the webhooks of the process {0}",
    "llm-profile": "the LLM profile {0}", "webapp": "the WebApp {0}",
}  # fmt: skip


@dataclass(frozen=True)
class SecretDestination:
    """A destination of secrets: `digest` changes with the settings that decide where they are sent, `hosts` names the hosts.

    A binding without a digest matches every digest with the same hosts; destinations that send nothing have neither.  A host
    without a scheme is reached over verified TLS; weaker connections show their scheme, see `host_of`.
    """

    kind: Kind
    target: str
    digest: str = ""
    hosts: str = ""

    def __str__(self) -> str:
        place = _LABELS[self.kind].format(self.target)
        return f"{place} ({self.hosts})" if self.hosts else place


def host_of(address: str) -> str:
    """The name of an address's host in destinations: with its scheme unless that is encrypted (`http://erp`)."""
    if "://" not in address:
        return address
    try:
        parts = urlsplit(address)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return address
    if not host:
        return address
    return host if parts.scheme.lower() in _ENCRYPTED else f"{parts.scheme.lower()}://{host}"


def place_of_hosts(kind: Kind, target: str, hosts: str) -> SecretDestination:
    """A destination chosen by its hosts alone, separated by commas; an address counts as its host."""
    return SecretDestination(kind, target, hosts=", ".join(host_of(each.strip()) for each in hosts.split(",")))


@dataclass(frozen=True)
class Binding:
    """A destination of a secret, with its creator, creation time and expiry (epoch ms)."""

    name: str
    destination: SecretDestination
    bound_by: str
    created_at: int
    expires_at: int | None

    @property
    def id(self) -> str:
        """Identifies the binding among those of its secret."""
        place = self.destination
        text = f"{place.kind}\0{place.target}\0{place.digest}\0{place.hosts}"
        return f"sbd_{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def list_bindings(scope: TenantScope, name: str | None = None) -> list[Binding]:
    """The destinations of one secret, or of all secrets."""
    rows = scope.select(SecretBindingRow)
    if name is not None:
        rows = rows.where(SecretBindingRow.name == name)
    return sorted(map(_from_row, rows), key=lambda b: (b.name, b.destination.kind, b.destination.target, b.created_at))


def find_unbound(scope: TenantScope, names: Iterable[str], place: SecretDestination) -> list[str]:
    """The names among `names` that are not bound to this place at present."""
    unique = sorted(set(names))
    if not unique:
        return []
    rows = db.rows(
        "SELECT name FROM secret_binding WHERE tenant_id = ? AND kind = ? AND target = ? "
        "AND (digest = ? OR (digest = '' AND hosts = ?)) AND (expires_at IS NULL OR expires_at > ?)",
        (scope.tenant_id, place.kind, place.target, place.digest, place.hosts, clock.now_ms()),
    )
    bound = {str(row[0]) for row in rows}
    return [name for name in unique if name not in bound]


def require_bindable(
    scope: TenantScope, names: Iterable[str], place: SecretDestination, *, pointer: str | None = None
) -> list[str]:
    """The names not yet bound to the place, if the actor may bind them; ScopeMissing without `secrets.write`."""
    unbound = find_unbound(scope, names, place)
    if unbound and SCOPE not in scope.scopes:
        raise ScopeMissing(
            Sentence(
                "the secret %(unbound)s is not allowed for %(place)s. "
                "Allowing it needs the scope %(scope)s; ask an owner or a builder to save this, or "
                "to add the destination in the console (Secrets, %(unbound2)s)",
                unbound=repr(unbound[0]), place=place, scope=SCOPE, unbound2=unbound[0],
            ),
            pointer=pointer, extra={"scope": SCOPE},
        )  # fmt: skip
    return unbound


def bind(scope: TenantScope, name: str, place: SecretDestination) -> Binding:
    """Allow the secret, which need not exist yet, at this place as well.  ScopeMissing without `secrets.write`."""
    scope.require(SCOPE)
    if not is_secret_name(name):
        raise ValidationFailed("a secret's name consists of at most 63 letters, digits and underscores", pointer="/name")

    def save() -> Binding:
        if scope.actor != "system" and scope.select(SecretBindingRow).count() >= MAX_BINDINGS:
            raise ValidationFailed(Sentence(
                "the secrets of a tenant can have at most %(most_bindings)s destinations in total; remove unused ones",
                most_bindings=MAX_BINDINGS,
            ))
        _delete_query(scope, name, place).execute()
        now = clock.now_ms()
        scope.insert(SecretBindingRow, name=name, **vars(place), bound_by=scope.actor, created_at=now)
        audit.record(scope, "secret.bind", name, _audit_details(place))
        return Binding(name, place, scope.actor, now, None)

    return db.write(save)


def bind_use(scope: TenantScope, names: Iterable[str], place: SecretDestination) -> None:
    """Inside a write: bind the secrets of a stored use to its place, replacing bindings to earlier settings of the place."""
    for name in names:
        is_place = (
            (SecretBindingRow.name == name) & (SecretBindingRow.kind == place.kind) & (SecretBindingRow.target == place.target)
        )
        scope.delete(SecretBindingRow).where(is_place & (SecretBindingRow.digest != "")).execute()
        bind(scope, name, place)


def unbind(scope: TenantScope, name: str, binding_id: str) -> Binding:
    """Remove a destination of the secret; NotFound."""
    scope.require(SCOPE)

    def remove() -> Binding:
        for binding in list_bindings(scope, name):
            if binding.id == binding_id:
                _delete_query(scope, name, binding.destination).execute()
                audit.record(scope, "secret.unbind", name, _audit_details(binding.destination))
                return binding
        raise NotFound(Sentence(
            "the secret %(name)s has no destination %(binding_id)s; GET /api/v1/secrets lists them",
            name=repr(name[:63]), binding_id=repr(binding_id[:80]),
        ))

    return db.write(remove)


def unbind_place(scope: TenantScope, name: str, place: SecretDestination) -> None:
    """Inside a write: remove every binding of the secret to this place, including those by hosts alone."""
    scope.require(SCOPE)
    for variant in (place, replace(place, digest="")):
        if _delete_query(scope, name, variant).execute():
            audit.record(scope, "secret.unbind", name, _audit_details(variant))


def delete_bindings_to(scope: TenantScope, target: str, *kinds: Kind) -> None:
    """Inside a write: delete the bindings of a deleted place, so that a new one of its name gets no secret."""
    row = SecretBindingRow
    scope.delete(row).where(row.kind.in_(kinds), row.target == target).execute()


def open_bound(scope: TenantScope, sealer: Sealer, name: str, place: SecretDestination) -> str:
    """The secret's value, for this place; PolicyDenied if it is not bound to it, NotFound if it is not set."""
    if find_unbound(scope, [name], place):
        raise build_not_bound(name, place)
    return unseal_secret(scope, sealer, name)


def open_for_webhook(sealer: Sealer, scope: TenantScope, name: str, process_id: str) -> str:
    """The secret that verifies a process's webhooks; errors as `open_bound`."""
    return open_bound(scope, sealer, name, SecretDestination("webhook", process_id))


def bind_process(scope: TenantScope, process_id: str, granted: Iterable[str], verifying: Iterable[str]) -> None:
    """Inside a write: bind the secrets that a published process reads and verifies webhooks with, if the publisher may.

    Without the scope `secrets.write` nothing is bound: the code only gets secrets bound to the process before.
    """
    if SCOPE in scope.scopes:
        uses: tuple[tuple[Kind, Iterable[str]], ...] = (("process", granted), ("webhook", verifying))
        for kind, names in uses:
            place = SecretDestination(kind, process_id)
            bind_use(scope, find_unbound(scope, names, place), place)


def build_not_bound(name: str, place: SecretDestination) -> PolicyDenied:
    """The error for a secret that is not bound to a place."""
    return PolicyDenied(
        Sentence(
            "the secret %(name)s is not allowed for %(place)s; ask an owner or a builder to add this destination in "
            "the console (Secrets, %(name2)s)",
            name=repr(name), place=place, name2=name,
        ),
        extra={"secret": name, "scope": SCOPE},
    )


def _delete_query(scope: TenantScope, name: str, place: SecretDestination) -> Any:
    row = SecretBindingRow
    return scope.delete(row).where(
        row.name == name, row.kind == place.kind, row.target == place.target, row.digest == place.digest, row.hosts == place.hosts
    )


def _audit_details(place: SecretDestination) -> dict[str, str]:
    return {"kind": place.kind, "target": place.target, **({"hosts": place.hosts} if place.hosts else {})}


def _from_row(row: SecretBindingRow) -> Binding:
    place = SecretDestination(row.kind, row.target, row.digest, row.hosts)
    return Binding(row.name, place, row.bound_by, row.created_at, row.expires_at)
