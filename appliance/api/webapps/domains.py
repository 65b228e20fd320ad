"""/api/v1/webapps/{app}/domains: custom domains of WebApps."""

from typing import Annotated, Literal

from pydantic import StringConstraints

from appliance.api.frame.routing import Answer, Body, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.webapps.domains import Domain, NewDomain

_DOMAINS_PATH = "/webapps/{app}/domains"
_DOMAIN_PATH = f"{_DOMAINS_PATH}/{{host}}"


class DnsRecordView(View):
    """A DNS record (or, for the method http, a file) that must exist, and what was found; `advice` says what to do next."""

    purpose: Literal["ownership", "address", "redirect"]
    name: str
    type: Literal["TXT", "CNAME", "A", "HTTP"]
    expected: list[str]
    observed: list[str]
    finding: Literal["unchecked", "ok", "missing", "wrong", "unknown"]
    advice: str


class CertificateView(View):
    """The state of a domain's certificate."""

    state: Literal["pending", "active", "failed"]
    error: str | None = None
    next_try: str | None = None
    not_after: str | None = None


class DomainView(View):
    """A domain with its state and its expected and observed DNS records.

    `host` is the name as DNS writes it (punycode), `display` as people do.
    """

    host: str
    display: str
    state: Literal["pending_dns", "verified", "cert_pending", "active", "failed"]
    method: Literal["txt", "http", "operator"]
    redirect_from: Literal["www", "apex"] | None = None
    primary: bool
    records: list[DnsRecordView]
    last_error: str | None = None
    failing_since: str | None = None
    checked_at: str | None = None
    next_check_at: str | None = None
    verified_at: str | None = None
    certificate: CertificateView | None = None
    created_at: str
    created_by: str


class ClaimDomain(Body):
    """With `redirect_from`, the same name with or without `www.` redirects to this one (301). The WebApp's own host redirects
    visitors to its `primary` domain."""

    host: Annotated[str, StringConstraints(max_length=1000)]
    method: Literal["txt", "http", "operator"] = "txt"
    redirect_from: Literal["www", "apex"] | None = None
    primary: bool = False


class ChangeDomain(Body):
    primary: bool


def domain_view(domain: Domain) -> DomainView:
    """The view of a domain."""
    certificate = domain.certificate
    return DomainView(
        host=domain.host, display=domain.display, state=domain.state, method=domain.method, redirect_from=domain.redirect_from,
        primary=domain.primary, last_error=domain.error, created_at=clock.rfc3339(domain.created_at), created_by=domain.created_by,
        failing_since=clock.optional_rfc3339(domain.failing_since), checked_at=clock.optional_rfc3339(domain.checked_at),
        next_check_at=clock.optional_rfc3339(domain.next_check_at), verified_at=clock.optional_rfc3339(domain.verified_at),
        records=[
            DnsRecordView(
                purpose=record.purpose, name=record.name, type=record.type, expected=list(record.expected),
                observed=list(record.observed), finding=record.finding, advice=record.advice,
            )
            for record in domain.records
        ],
        certificate=certificate and CertificateView(
            state=certificate.state, error=certificate.error, next_try=clock.optional_rfc3339(certificate.next_try),
            not_after=clock.optional_rfc3339(certificate.not_after),
        ),
    )  # fmt: skip


@route("GET", _DOMAINS_PATH, scope="webapps.read", returns=DomainView, listed=True)
def list_webapp_domains(call: Call, app: str) -> object:
    """List the domains of a WebApp."""
    return call.services.domains.list_domains(call.scope, app, call.query.page).map(domain_view)


@route("POST", _DOMAINS_PATH, scope="webapps.write", body=ClaimDomain, returns=DomainView, status=201)
def claim_webapp_domain(call: Call, app: str) -> Answer:
    """Claim a host name for a WebApp.

    `records` lists the DNS records to create: the proof that the name is yours, and the address it must point to. The domain is
    served once the proof is found. A name that another tenant has, or released within the last 30 days, is refused.
    """
    body: ClaimDomain = call.body
    new = NewDomain(body.host, body.method, body.redirect_from, body.primary)
    domain = call.services.domains.claim_domain(call.scope, app, new)
    return Answer(domain_view(domain), 201, {"Location": f"/api/v1/webapps/{app}/domains/{domain.host}"})


@route("GET", _DOMAIN_PATH, scope="webapps.read", returns=DomainView)
def get_webapp_domain(call: Call, app: str, host: str) -> DomainView:
    """Show a domain with its expected and observed records, last error, next check and certificate."""
    return domain_view(call.services.domains.get_domain(call.scope, app, host))


@route("PATCH", _DOMAIN_PATH, scope="webapps.write", body=ChangeDomain, returns=DomainView)
def change_webapp_domain(call: Call, app: str, host: str) -> DomainView:
    """Make a domain the primary one, to which the WebApp's own host redirects, or undo that."""
    return domain_view(call.services.domains.change_domain(call.scope, app, host, primary=call.body.primary))


@route("POST", f"{_DOMAIN_PATH}/verify", scope="webapps.write", returns=DomainView, atomic=False)
def verify_webapp_domain(call: Call, app: str, host: str) -> DomainView:
    """Check a domain's records now; the appliance also checks them by itself, at `next_check_at`."""
    return domain_view(call.services.domains.verify_domain(call.scope, app, host))


@route("DELETE", _DOMAIN_PATH, scope="webapps.write", returns=DeletedView)
def release_webapp_domain(call: Call, app: str, host: str) -> DeletedView:
    """Release a domain; if it was verified, only this tenant may claim it again within 30 days."""
    call.services.domains.release_domain(call.scope, app, host)
    return DeletedView(deleted=host)
