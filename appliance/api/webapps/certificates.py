"""/api/v1/webapps/{app}/domains/{host}/certificate: the certificate of a WebApp's own domain."""

from functools import partial
from typing import Annotated, Literal

from pydantic import StringConstraints

from appliance.api.frame.routing import Body, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.webapps.certificates import Certificate, bring_certificate

_ONE = "/webapps/{app}/domains/{host}/certificate"
Pem = Annotated[str, StringConstraints(max_length=64 << 10)]


class StoredCertificateView(View):
    """What a certificate says; the private key is never shown.

    `origin` is acme, uploaded or internal (the built-in authority); `renew_at` is when the next one is ordered.
    """

    host: str
    origin: Literal["acme", "uploaded", "internal"]
    names: list[str]
    issuer: str
    fingerprint_sha256: str
    key: str
    not_before: str
    not_after: str
    renew_at: str | None = None
    updated_at: str


class UploadCertificate(Body):
    """PEM texts: the certificate (its issuers may follow, in order), its key without a password, the issuers if apart."""

    certificate: Pem
    private_key: Pem
    chain: Pem = ""


def certificate_view(found: Certificate) -> StoredCertificateView:
    """A certificate as the API tells it."""
    facts = found.facts
    return StoredCertificateView(
        host=found.host, origin=found.origin, names=list(facts.names), issuer=facts.issuer, fingerprint_sha256=facts.fingerprint,
        key=facts.key, not_before=clock.rfc3339(facts.not_before), not_after=clock.rfc3339(facts.not_after),
        renew_at=clock.optional_rfc3339(found.renew_at), updated_at=clock.rfc3339(found.updated_at),
    )  # fmt: skip


@route("GET", _ONE, scope="webapps.read", returns=StoredCertificateView)
def get_domain_certificate(call: Call, app: str, host: str) -> StoredCertificateView:
    """Show the certificate of a domain; how ordering one goes is told by the domain."""
    domain = call.services.domains.get_domain(call.scope, app, host)
    return certificate_view(call.services.certificates.get(call.scope, domain.host))


@route("PUT", _ONE, scope="webapps.publish", body=UploadCertificate, returns=StoredCertificateView)
def put_domain_certificate(call: Call, app: str, host: str) -> StoredCertificateView:
    """Serve a domain with a certificate of your own, until it expires; none is ordered meanwhile.

    It is taken up within seconds, and serves the name that redirects to the domain too if it covers that.
    Refused with a code in `details` when it does not fit: `key_mismatch`, `host_not_covered`,
    `expired`, `not_yet_valid`, `chain_order`, `encrypted_key`, `weak_key`, `unsupported_key`, `weak_signature`,
    `not_for_servers`, `unreadable`. The domain must have been proven.
    """
    body: UploadCertificate = call.body
    pair = (body.certificate, body.private_key)
    find = partial(call.services.domains.get_domain, call.scope, app, host)
    return certificate_view(bring_certificate(call.scope, call.services.certificates, find, pair, body.chain))


@route("DELETE", _ONE, scope="webapps.publish", returns=DeletedView)
def delete_domain_certificate(call: Call, app: str, host: str) -> DeletedView:
    """Forget the certificate that was uploaded; another one is got where that can be."""
    domain = call.services.domains.get_domain(call.scope, app, host)
    call.services.certificates.delete_uploaded(call.scope, domain.host, domain.names[1:])
    return DeletedView(deleted=domain.host)
