"""One valid request for every route of domains."""

from collections.abc import Callable

from tests.api.example import Example
from tests.api.resources import Resources, fresh
from tests.sites.signing import Authority, text_of


def _webapp(tenant: Resources) -> str:
    return tenant.once("webapp", tenant.webapp)


def _claim(tenant: Resources) -> Example:
    """A domain of the tenant's own, of a WebApp of its own, which may have only so many."""
    app, host = tenant.webapp(), f"{fresh('shop')}.{tenant.tenant}.test"
    tenant.ask("POST", f"/webapps/{app}/domains", {"host": host})
    return Example({"app": app, "host": host})


def _one(tenant: Resources) -> dict[str, str]:
    app, _, host = tenant.once("domain", lambda: "/".join(map(str, _claim(tenant).path.values()))).partition("/")
    return {"app": app, "host": host}


def _certified(tenant: Resources) -> Example:
    """A domain that is proven, with a certificate that was uploaded."""
    example = _claim(tenant)
    tenant.running.services.webapps.domains.approve_domain(tenant.scope, example.path["host"])
    certificate, private_key = AUTHORITY.pair(example.path["host"])
    body = {"certificate": certificate, "private_key": private_key, "chain": text_of(AUTHORITY.certificate)}
    tenant.ask("PUT", f"/webapps/{example.path['app']}/domains/{example.path['host']}/certificate", body)
    return Example(example.path, body)


def _without_body(example: Example) -> Example:
    return Example(example.path)


AUTHORITY = Authority()
DOMAINS: dict[str, Callable[[Resources], Example]] = {
    "list_webapp_domains": lambda tenant: Example({"app": _webapp(tenant)}),
    "claim_webapp_domain": lambda tenant: Example({"app": tenant.webapp()}, {"host": f"{fresh('new')}.{tenant.tenant}.test"}),
    "get_webapp_domain": lambda tenant: Example(_one(tenant)),
    "change_webapp_domain": lambda tenant: Example(_one(tenant), {"primary": True}),
    "verify_webapp_domain": lambda tenant: Example(_one(tenant)),
    "release_webapp_domain": _claim,
    "get_domain_certificate": lambda tenant: _without_body(_certified(tenant)),
    "put_domain_certificate": _certified,
    "delete_domain_certificate": lambda tenant: _without_body(_certified(tenant)),
}
