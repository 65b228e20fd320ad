"""/api/v1/webapps/{app}/domains: custom domains of WebApps."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from appliance.api.frame.fields import CreatedAt, CreatedBy
from appliance.api.frame.routing import Answer, Body, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import AlreadyExists, Conflict, ValidationFailed
from appliance.webapps.domains import Domain, NewDomain

_DOMAINS_PATH = "/webapps/{app}/domains"
_DOMAIN_PATH = f"{_DOMAINS_PATH}/{{host}}"

Method = Annotated[
    Literal["txt", "http", "operator"],
    Field(description="How you prove that the name is yours: a TXT record, a file on its web server, or the operator's approval."),
]
RedirectFrom = Annotated[
    Literal["www", "apex"],
    Field(
        description="Which counterpart redirects to this host with 301: the one with `www.`, or the one without (`apex`); or "
        "neither."
    ),
]
Primary = Annotated[bool, Field(description="Whether the WebApp's own host redirects visitors to this domain; one domain can.")]


class DnsRecordView(View):
    """A DNS record (or, for the method http, a file) that must exist, and what was found; `advice` says what to do next."""

    purpose: Annotated[
        Literal["ownership", "address", "redirect"],
        Field(description="What it is for: to prove the claim, to point the host here, or its counterpart that redirects."),
    ]
    name: Annotated[str, Field(description="Where it belongs: a complete DNS name, or the address of the file for `HTTP`.")]
    type: Annotated[
        Literal["TXT", "CNAME", "A", "HTTP"],
        Field(description="Kind of DNS record (`A` stands for A and AAAA), or `HTTP` for a file on the domain's web server."),
    ]
    expected: Annotated[
        list[str], Field(description="Values to enter; empty where only the operator knows the appliance's addresses.")
    ]
    observed: Annotated[list[str], Field(description="Values the last check found; empty before it, or if there were none.")]
    finding: Annotated[
        Literal["unchecked", "ok", "missing", "wrong", "unknown"],
        Field(description="Result of the last check; `unknown` if the name servers did not answer or the appliance cannot tell."),
    ]
    advice: Annotated[str, Field(description="What to do next, as a sentence; empty if nothing is left to do.")]


class CertificateView(View):
    """The state of a domain's certificate."""

    state: Annotated[
        Literal["pending", "active", "failed"],
        Field(description="Whether one is being ordered, is in use, or could not be obtained."),
    ]
    error: Annotated[str | None, Field(description="Why the last order failed, as a sentence; absent after a success.")] = None
    next_try: Annotated[str | None, Field(description="When the next order starts, RFC 3339 in UTC; absent if none is due.")] = None
    not_after: Annotated[str | None, Field(description="When it expires, RFC 3339 in UTC; absent while there is none.")] = None


class DomainView(View):
    """A domain with its state and its expected and observed DNS records.

    `host` is the name as DNS writes it (punycode), `display` as people do.
    """

    host: Annotated[str, Field(description="Name as DNS writes it, in lower case and punycode, such as `xn--bcher-kva.example`.")]
    display: Annotated[str, Field(description="The same name as people write it, such as `bücher.example`.")]
    state: Annotated[
        Literal["pending_dns", "verified", "cert_pending", "active", "failed"],
        Field(
            description="`pending_dns` waits for the proof, `verified` for the name to point here, `cert_pending` for a "
            "certificate; "
            "`active` is served; `failed` was not proven within 30 days, or got no certificate."
        ),
    ]
    method: Method
    redirect_from: RedirectFrom | None = None
    primary: Primary
    records: Annotated[list[DnsRecordView], Field(description="Everything DNS must hold, with what the last check found.")]
    last_error: Annotated[
        str | None, Field(description="What the last check found wrong, as a sentence; absent if nothing.")
    ] = None
    failing_since: Annotated[
        str | None,
        Field(
            description="Since when the checks of a verified domain fail, RFC 3339 in UTC; after 7 days it is released. Else "
            "absent."
        ),
    ] = None
    checked_at: Annotated[str | None, Field(description="When it was last checked, RFC 3339 in UTC; absent before.")] = None
    next_check_at: Annotated[
        str | None, Field(description="When it is checked again by itself, RFC 3339 in UTC; absent if it is not.")
    ] = None
    verified_at: Annotated[str | None, Field(description="When the proof was found, RFC 3339 in UTC; absent before.")] = None
    certificate: Annotated[
        CertificateView | None, Field(description="Progress of its certificate; absent where the appliance needs none.")
    ] = None
    created_at: CreatedAt
    created_by: CreatedBy


class ClaimDomain(Body):
    """With `redirect_from`, the same name with or without `www.` redirects to this one (301). The WebApp's own host redirects
    visitors to its `primary` domain."""

    host: Annotated[
        str,
        StringConstraints(max_length=1000),
        Field(
            description="Name to claim, such as `shop.example.com`, without scheme and port; letters beyond ASCII are converted."
        ),
    ]
    method: Method = "txt"
    redirect_from: RedirectFrom | None = None
    primary: Primary = False


class ChangeDomain(Body):
    primary: Primary


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
    """List the domains of a WebApp.

    Each comes with its state and the DNS records that it needs.
    """
    return call.services.webapps.domains.list_domains(call.scope, app, call.query.page).map(domain_view)


@route(
    "POST", _DOMAINS_PATH, scope="webapps.write", body=ClaimDomain, returns=DomainView, status=201, errors=(AlreadyExists, Conflict)
)  # fmt: skip
def claim_webapp_domain(call: Call, app: str) -> Answer:
    """Claim a host name for a WebApp.

    `records` lists the DNS records to create: the proof that the name is yours, and the address it must point to. The domain is
    served once the proof is found. A name that another tenant has, or released within the last 30 days, is refused.
    """
    body: ClaimDomain = call.body
    new = NewDomain(body.host, body.method, body.redirect_from, body.primary)
    domain = call.services.webapps.domains.claim_domain(call.scope, app, new)
    return Answer(domain_view(domain), 201, {"Location": f"/api/v1/webapps/{app}/domains/{domain.host}"})


@route("GET", _DOMAIN_PATH, scope="webapps.read", returns=DomainView, errors=(ValidationFailed,))
def get_webapp_domain(call: Call, app: str, host: str) -> DomainView:
    """Show a domain of a WebApp.

    With its expected and observed records, last error, next check and certificate.
    """
    return domain_view(call.services.webapps.domains.get_domain(call.scope, app, host))


@route("PATCH", _DOMAIN_PATH, scope="webapps.write", body=ChangeDomain, returns=DomainView)
def change_webapp_domain(call: Call, app: str, host: str) -> DomainView:
    """Change which domain is the primary one.

    The WebApp's own host redirects to the primary domain.
    """
    return domain_view(call.services.webapps.domains.change_domain(call.scope, app, host, primary=call.body.primary))


@route("POST", f"{_DOMAIN_PATH}/verify", scope="webapps.write", returns=DomainView, atomic=False, errors=(AlreadyExists,))
def verify_webapp_domain(call: Call, app: str, host: str) -> DomainView:
    """Check the records of a domain now.

    The appliance also checks them by itself, at `next_check_at`.
    """
    return domain_view(call.services.webapps.domains.verify_domain(call.scope, app, host))


@route("DELETE", _DOMAIN_PATH, scope="webapps.write", returns=DeletedView)
def release_webapp_domain(call: Call, app: str, host: str) -> DeletedView:
    """Release a domain.

    If it was verified, only this tenant may claim it again within 30 days.
    """
    call.services.webapps.domains.release_domain(call.scope, app, host)
    return DeletedView(deleted=host)
