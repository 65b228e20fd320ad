"""What the operator alone may do: see every tenant's domains, take one away, let a name rest no longer."""

from dataclasses import dataclass

from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.tenants import list_tenants, system_scope

from . import holding
from .models import DomainRow
from .names import is_public_suffix, normalise_host
from .records import Domain
from .service import release_row, show

__all__ = ["TenantDomain", "is_public_suffix", "list_every_domain", "release_name"]


@dataclass(frozen=True)
class TenantDomain:
    tenant: str
    domain: Domain


def list_every_domain(tenant: str | None = None) -> list[TenantDomain]:
    """The domains of all tenants or one, by tenant and host."""
    found = []
    for known in list_tenants():
        if tenant in (None, known.id):
            rows = system_scope(known.id).select(DomainRow).order_by(DomainRow.host)
            found += [TenantDomain(known.id, show(row)) for row in rows]
    return found


def release_name(host: str, *, lift: bool) -> list[str]:
    """Take a host name from whoever holds it, or only let it rest no longer (`lift`); answers what was done.  NotFound."""
    name = normalise_host(host)

    def release() -> list[str]:
        done, names = [], [name]
        for tenant_id, canonical in db.rows("SELECT tenant_id, host FROM domain_name WHERE name = ?", (name,)):
            scope = system_scope(str(tenant_id))
            row = scope.get(DomainRow, host=canonical)
            names = row.names
            release_row(scope, row)
            done.append(f"{row.host} is taken from {tenant_id}")
        if lift:
            done += [f"{each} may be claimed by anybody who proves it" for each in names if holding.lift(each)]
        if not done:
            raise NotFound(f"nobody holds {name}" + (", and it does not rest" if lift else "; --lift ends its rest, if it has one"))
        return done

    return db.write(release)
