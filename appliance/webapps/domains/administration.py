"""Domain operations of the operator: list every tenant's domains, take a name away, or end its waiting period."""

from dataclasses import dataclass

from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.sentences import Sentence
from appliance.tenants import list_tenants, system_scope

from . import name_ownership
from .models import DomainRow
from .names import is_public_suffix, normalise_host
from .records import Domain
from .service import release_row, to_domain

__all__ = ["TenantDomain", "is_public_suffix", "list_every_domain", "release_name"]


@dataclass(frozen=True)
class TenantDomain:
    tenant: str
    domain: Domain


def list_every_domain(tenant: str | None = None) -> list[TenantDomain]:
    """The domains of all tenants or of one, sorted by tenant and host."""
    result = []
    for each in list_tenants():
        if tenant in (None, each.id):
            rows = system_scope(each.id).select(DomainRow).order_by(DomainRow.host)
            result += [TenantDomain(each.id, to_domain(row)) for row in rows]
    return result


def release_name(host: str, *, lift: bool) -> list[str]:
    """Take a host name from the tenant that holds it; with `lift`, also end the waiting period. Returns what was done.
    NotFound."""
    name = normalise_host(host)

    def release() -> list[str]:
        actions, names = [], [name]
        for tenant_id, canonical in db.rows("SELECT tenant_id, host FROM domain_name WHERE name = ?", (name,)):
            scope = system_scope(str(tenant_id))
            row = scope.get(DomainRow, host=canonical)
            names = row.names
            release_row(scope, row)
            actions.append(f"{row.host} was taken from {tenant_id}")
        if lift:
            actions += [f"{each} can be claimed again" for each in names if name_ownership.remove_tombstone(each)]
        if not actions:
            hint = "it is not reserved either" if lift else "--lift makes the name available if it is reserved"
            raise NotFound(Sentence("no tenant holds %(name)s; %(hint)s", name=name, hint=hint))
        return actions

    return db.write(release)
