"""Where secrets may go: each is bound to the places that somebody with the scope `secrets.write` chose for it.

A place is an integration with the hosts it leads to, a process, the webhooks of a process, an LLM profile or a WebApp.  It is
checked when a use is stored and again when the secret is opened, so that no other way of changing a row sends it elsewhere.
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
from appliance.tenants.service import is_secret_name, open_secret

Kind = Literal["integration", "process", "webhook", "llm-profile", "webapp"]
KINDS: tuple[Kind, ...] = ("integration", "process", "webhook", "llm-profile", "webapp")
SCOPE = "secrets.write"
MOST_BINDINGS = 1_000  # that people and keys add; what the appliance itself takes over may be more
_ENCRYPTED = frozenset({"https", "wss", "ldaps", "ftps", "sftp", "smtps", "imaps"})
_WHAT = {
    "integration": "the integration {0}", "process": "the process {0}", "webhook": "the webhooks of the process {0}",
    "llm-profile": "the LLM profile {0}", "webapp": "the WebApp {0}",
}  # fmt: skip


@dataclass(frozen=True)
class Destination:
    """A place for secrets: `digest` changes with whom it sends them to, `hosts` is that in words.

    A binding without a digest fits every digest that leads to the same hosts; the places that send nothing have neither.  Hosts
    that are named alone are spoken to over TLS that is verified: what is less says so, see `host_of`.
    """

    kind: Kind
    target: str
    digest: str = ""
    hosts: str = ""

    def __str__(self) -> str:
        place = _WHAT[self.kind].format(self.target)
        return f"{place} ({self.hosts})" if self.hosts else place


def host_of(address: str) -> str:
    """How a destination names whom an address leads to: the host, with its scheme where that is not encrypted (`http://erp`)."""
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


def place_of_hosts(kind: Kind, target: str, hosts: str) -> Destination:
    """A destination that is chosen by its hosts alone, separated by commas; an address stands for its host."""
    return Destination(kind, target, hosts=", ".join(host_of(each.strip()) for each in hosts.split(",")))


@dataclass(frozen=True)
class Binding:
    """A destination of a secret: who chose it, when, and until when it holds (epoch ms)."""

    name: str
    destination: Destination
    bound_by: str
    created_at: int
    expires_at: int | None

    @property
    def id(self) -> str:
        """Names the binding among those of its secret."""
        place = self.destination
        text = f"{place.kind}\0{place.target}\0{place.digest}\0{place.hosts}"
        return f"sbd_{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def list_bindings(scope: TenantScope, name: str | None = None) -> list[Binding]:
    """The destinations of one secret, or of all."""
    rows = scope.select(SecretBindingRow)
    if name is not None:
        rows = rows.where(SecretBindingRow.name == name)
    return sorted(map(_of_row, rows), key=lambda b: (b.name, b.destination.kind, b.destination.target, b.created_at))


def find_unbound(scope: TenantScope, names: Iterable[str], place: Destination) -> list[str]:
    """Those of `names` that may not go to this place now."""
    wanted = sorted(set(names))
    if not wanted:
        return []
    found = db.rows(
        "SELECT name FROM secret_binding WHERE tenant_id = ? AND kind = ? AND target = ? "
        "AND (digest = ? OR (digest = '' AND hosts = ?)) AND (expires_at IS NULL OR expires_at > ?)",
        (scope.tenant_id, place.kind, place.target, place.digest, place.hosts, clock.now_ms()),
    )
    bound = {str(row[0]) for row in found}
    return [name for name in wanted if name not in bound]


def refuse_unbound(scope: TenantScope, names: Iterable[str], place: Destination, *, pointer: str | None = None) -> list[str]:
    """The names that this actor may bind to the place and that are not bound yet; ScopeMissing without `secrets.write`."""
    unbound = find_unbound(scope, names, place)
    if unbound and SCOPE not in scope.scopes:
        raise ScopeMissing(
            Sentence(
                "the secret %(unbound)s may not go to %(place)s: nobody who may set secrets has chosen that. "
                "Choosing where a secret goes needs the scope %(scope)s; ask an owner or a builder to save this, or "
                "to add the destination in the console (Secrets, %(unbound2)s)",
                unbound=repr(unbound[0]), place=place, scope=SCOPE, unbound2=unbound[0],
            ),
            pointer=pointer, extra={"scope": SCOPE},
        )  # fmt: skip
    return unbound


def bind(scope: TenantScope, name: str, place: Destination, *, expires_at: int | None = None) -> Binding:
    """Let the secret, which need not be set yet, go to this place as well.  ScopeMissing without `secrets.write`."""
    scope.require(SCOPE)
    if not is_secret_name(name):
        raise ValidationFailed("a secret's name has letters, digits and underscores, at most 63", pointer="/name")

    def put() -> Binding:
        if scope.actor != "system" and scope.select(SecretBindingRow).count() >= MOST_BINDINGS:
            raise ValidationFailed(Sentence(
                "the secrets of a tenant have at most %(most_bindings)s destinations; remove those nobody needs",
                most_bindings=MOST_BINDINGS,
            ))
        _matching(scope, name, place).execute()
        now = clock.now_ms()
        scope.insert(
            SecretBindingRow, name=name, **vars(place), bound_by=scope.actor, created_at=now, expires_at=expires_at,
        )  # fmt: skip
        audit.record(scope, "secret.bind", name, _audited(place))
        return Binding(name, place, scope.actor, now, expires_at)

    return db.write(put)


def bind_use(scope: TenantScope, names: Iterable[str], place: Destination) -> None:
    """Inside a write: what somebody who may stored with these secrets in it is from now on where they go, and only as it is now."""
    for name in names:
        mine = (SecretBindingRow.name == name) & (SecretBindingRow.kind == place.kind) & (SecretBindingRow.target == place.target)
        scope.delete(SecretBindingRow).where(mine & (SecretBindingRow.digest != "")).execute()
        bind(scope, name, place)


def unbind(scope: TenantScope, name: str, binding_id: str) -> Binding:
    """Let the secret go there no more; NotFound."""
    scope.require(SCOPE)

    def remove() -> Binding:
        for binding in list_bindings(scope, name):
            if binding.id == binding_id:
                _matching(scope, name, binding.destination).execute()
                audit.record(scope, "secret.unbind", name, _audited(binding.destination))
                return binding
        raise NotFound(Sentence(
            "the secret %(name)s has no destination %(binding_id)s; GET /api/v1/secrets lists them",
            name=repr(name[:63]), binding_id=repr(binding_id[:80]),
        ))

    return db.write(remove)


def unbind_place(scope: TenantScope, name: str, place: Destination) -> None:
    """Inside a write: remove every destination by which the secret may go to this place, that of its hosts alone, too."""
    scope.require(SCOPE)
    for known in (place, replace(place, digest="")):
        if _matching(scope, name, known).execute():
            audit.record(scope, "secret.unbind", name, _audited(known))


def forget_target(scope: TenantScope, target: str, *kinds: Kind) -> None:
    """Inside a write: the place is gone; another one of its name gets no secret by that."""
    row = SecretBindingRow
    scope.delete(row).where(row.kind.in_(kinds), row.target == target).execute()


def open_bound(scope: TenantScope, sealer: Sealer, name: str, place: Destination) -> str:
    """The value, for this place; PolicyDenied when it may not go there, NotFound when it is not set."""
    if find_unbound(scope, [name], place):
        raise not_bound(name, place)
    return open_secret(scope, sealer, name)


def open_for_webhook(sealer: Sealer, scope: TenantScope, name: str, process_id: str) -> str:
    """As `open_bound`, for what verifies the webhooks of a process."""
    return open_bound(scope, sealer, name, Destination("webhook", process_id))


def bind_process(scope: TenantScope, process_id: str, granted: Iterable[str], verifying: Iterable[str]) -> None:
    """Inside a write: who may set secrets published this, so its code may read those granted to it and its webhooks be verified.

    Published by anybody else, a secret stays where it was: the code gets only what was bound to the process before.
    """
    if SCOPE in scope.scopes:
        uses: tuple[tuple[Kind, Iterable[str]], ...] = (("process", granted), ("webhook", verifying))
        for kind, names in uses:
            place = Destination(kind, process_id)
            bind_use(scope, find_unbound(scope, names, place), place)


def not_bound(name: str, place: Destination) -> PolicyDenied:
    """Why a secret is not opened."""
    return PolicyDenied(
        Sentence(
            "the secret %(name)s may not go to %(place)s; ask an owner or a builder to add this destination in "
            "the console (Secrets, %(name2)s)",
            name=repr(name), place=place, name2=name,
        ),
        extra={"secret": name, "scope": SCOPE},
    )


def _matching(scope: TenantScope, name: str, place: Destination) -> Any:
    row = SecretBindingRow
    return scope.delete(row).where(
        row.name == name, row.kind == place.kind, row.target == place.target, row.digest == place.digest, row.hosts == place.hosts
    )


def _audited(place: Destination) -> dict[str, str]:
    return {"kind": place.kind, "target": place.target, **({"hosts": place.hosts} if place.hosts else {})}


def _of_row(row: SecretBindingRow) -> Binding:
    place = Destination(row.kind, row.target, row.digest, row.hosts)
    return Binding(row.name, place, row.bound_by, row.created_at, row.expires_at)
