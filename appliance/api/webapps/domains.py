"""/api/v1/webapps/{app}/domains: host names of their own for WebApps."""

from typing import Annotated, Literal

from pydantic import StringConstraints

from appliance.api.frame.routing import Answer, Body, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.webapps.domains import Domain, NewDomain

_ALL = "/webapps/{app}/domains"
_ONE = f"{_ALL}/{{host}}"


class DnsRecordView(View):
    """A record that is to be there (or, for the method http, a file), and what was seen; `advice` says what to do next."""

    purpose: Literal["ownership", "address", "redirect"]
    name: str
    type: Literal["TXT", "CNAME", "A", "HTTP"]
    expected: list[str]
    observed: list[str]
    finding: Literal["unchecked", "ok", "missing", "wrong", "unknown"]
    advice: str


class CertificateView(View):
    """How the certificate stands."""

    state: Literal["pending", "active", "failed"]
    error: str | None = None
    next_try: str | None = None
    not_after: str | None = None


class DomainView(View):
    """A domain: how far it is, what is to be in its DNS and what was seen there.

    `host` is written as DNS knows it, `display` as people do.
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
    """`redirect_from` names the other of a pair with and without `www.`, which then answers 301; the app's own host sends
    its visitors to the `primary` one."""

    host: Annotated[str, StringConstraints(max_length=1000)]
    method: Literal["txt", "http", "operator"] = "txt"
    redirect_from: Literal["www", "apex"] | None = None
    primary: bool = False


class ChangeDomain(Body):
    primary: bool


def domain_view(domain: Domain) -> DomainView:
    """A domain as the API tells it."""
    told = domain.certificate
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
        certificate=told and CertificateView(
            state=told.state, error=told.error, next_try=clock.optional_rfc3339(told.next_try),
            not_after=clock.optional_rfc3339(told.not_after),
        ),
    )  # fmt: skip


@route("GET", _ALL, scope="webapps.read", returns=DomainView, listed=True)
def list_webapp_domains(call: Call, app: str) -> object:
    """List the domains of a WebApp."""
    return call.services.domains.list_domains(call.scope, app, call.query.page).map(domain_view)


@route("POST", _ALL, scope="webapps.write", body=ClaimDomain, returns=DomainView, status=201)
def claim_webapp_domain(call: Call, app: str) -> Answer:
    """Claim a host name for a WebApp.

    `records` says what to put where: the proof that the name is yours, and where it is to lead. It is served once the proof
    has been seen. A name that another tenant holds, or gave up within the last 30 days, is refused.
    """
    body: ClaimDomain = call.body
    made = call.services.domains.claim_domain(call.scope, app, NewDomain(body.host, body.method, body.redirect_from, body.primary))
    return Answer(domain_view(made), 201, {"Location": f"/api/v1/webapps/{app}/domains/{made.host}"})


@route("GET", _ONE, scope="webapps.read", returns=DomainView)
def get_webapp_domain(call: Call, app: str, host: str) -> DomainView:
    """Show a domain: expected and observed records, last error, next check, certificate."""
    return domain_view(call.services.domains.get_domain(call.scope, app, host))


@route("PATCH", _ONE, scope="webapps.write", body=ChangeDomain, returns=DomainView)
def change_webapp_domain(call: Call, app: str, host: str) -> DomainView:
    """Make a domain the one that the app's own host sends its visitors to, or not any more."""
    return domain_view(call.services.domains.change_domain(call.scope, app, host, primary=call.body.primary))


@route("POST", f"{_ONE}/verify", scope="webapps.write", returns=DomainView, atomic=False)
def verify_webapp_domain(call: Call, app: str, host: str) -> DomainView:
    """Look at a domain now, and answer what was seen; the appliance does so by itself too, at `next_check_at`."""
    return domain_view(call.services.domains.verify_domain(call.scope, app, host))


@route("DELETE", _ONE, scope="webapps.write", returns=DeletedView)
def release_webapp_domain(call: Call, app: str, host: str) -> DeletedView:
    """Give up a domain; if it was proven, only this tenant may claim it again within 30 days."""
    call.services.domains.release_domain(call.scope, app, host)
    return DeletedView(deleted=host)
