"""/api/v1/webapps/{app}/domains/{host}/certificate: the certificate of a WebApp's own domain."""

from functools import partial
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from appliance.api.frame.fields import UpdatedAt
from appliance.api.frame.routing import Body, Call, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import Conflict, ValidationFailed
from appliance.webapps.certificates import Certificate, upload_certificate

_CERTIFICATE_PATH = "/webapps/{app}/domains/{host}/certificate"
Pem = Annotated[str, StringConstraints(max_length=64 << 10)]


class StoredCertificateView(View):
    """A certificate without its private key.

    `origin` is acme, uploaded or internal (the built-in authority); `renew_at` is when its replacement is ordered.
    """

    host: Annotated[str, Field(description="Name of the domain it is for, as DNS writes it (punycode).")]
    origin: Annotated[
        Literal["acme", "uploaded", "internal"],
        Field(
            description="Where it comes from: ordered from an authority by ACME, sent by a member, or the appliance's own "
            "authority."
        ),
    ]
    names: Annotated[list[str], Field(description="DNS names the certificate covers, `*.example.com` included.")]
    issuer: Annotated[str, Field(description="Name of the authority that signed it, as the certificate states.")]
    fingerprint_sha256: Annotated[str, Field(description="SHA-256 of the certificate in DER, in hexadecimal.")]
    key: Annotated[str, Field(description="Type and size of the public key, such as `RSA 2048` or `ECDSA secp256r1`.")]
    not_before: Annotated[str, Field(description="Time from which browsers accept it, RFC 3339 in UTC.")]
    not_after: Annotated[str, Field(description="Time after which browsers refuse it, RFC 3339 in UTC.")]
    renew_at: Annotated[
        str | None, Field(description="When its replacement is ordered, RFC 3339 in UTC; absent if none will be.")
    ] = None
    updated_at: UpdatedAt


class UploadCertificate(Body):
    """PEM texts: `certificate` (its issuers may follow, in order), `private_key` without a password, and `chain` with the issuers
    if they are not in `certificate`."""

    certificate: Annotated[
        Pem, Field(description="The certificate as PEM, optionally followed by those of its issuers; at most 64 KiB.")
    ]
    private_key: Annotated[
        Pem,
        Field(description="Its RSA or ECDSA key as PEM without a password, at most 64 KiB; stored encrypted, never shown again."),
    ]
    chain: Annotated[
        Pem, Field(description="Certificates of the issuers as PEM, if they are not in `certificate`; at most 64 KiB.")
    ] = ""


def certificate_view(certificate: Certificate) -> StoredCertificateView:
    """The view of a certificate."""
    facts = certificate.facts
    return StoredCertificateView(
        host=certificate.host, origin=certificate.origin, names=list(facts.names), issuer=facts.issuer,
        fingerprint_sha256=facts.fingerprint, key=facts.key,
        not_before=clock.rfc3339(facts.not_before), not_after=clock.rfc3339(facts.not_after),
        renew_at=clock.optional_rfc3339(certificate.renew_at), updated_at=clock.rfc3339(certificate.updated_at),
    )  # fmt: skip


@route("GET", _CERTIFICATE_PATH, scope="webapps.read", returns=StoredCertificateView, errors=(ValidationFailed,))
def get_domain_certificate(call: Call, app: str, host: str) -> StoredCertificateView:
    """Show the certificate of a domain.

    The domain itself shows the progress of an order.
    """
    domain = call.services.webapps.domains.get_domain(call.scope, app, host)
    return certificate_view(call.services.webapps.certificates.get(call.scope, domain.host))


@route("PUT", _CERTIFICATE_PATH, scope="webapps.publish", body=UploadCertificate, returns=StoredCertificateView, errors=(Conflict,))
def put_domain_certificate(call: Call, app: str, host: str) -> StoredCertificateView:
    """Upload your own certificate for a domain.

    No certificate is ordered for the domain until this one expires. It takes effect within seconds, also for the name that
    redirects to the domain if it covers that name. A certificate that does not fit is refused with a code in `details`:
    `key_mismatch`, `host_not_covered`, `expired`, `not_yet_valid`, `chain_order`, `encrypted_key`, `weak_key`,
    `unsupported_key`, `weak_signature`, `not_for_servers`, `unreadable`. The domain must be verified.
    """
    body: UploadCertificate = call.body
    pair = (body.certificate, body.private_key)
    find = partial(call.services.webapps.domains.get_domain, call.scope, app, host)
    return certificate_view(upload_certificate(call.scope, call.services.webapps.certificates, find, pair, body.chain))


@route("DELETE", _CERTIFICATE_PATH, scope="webapps.publish", returns=DeletedView)
def delete_domain_certificate(call: Call, app: str, host: str) -> DeletedView:
    """Delete an uploaded certificate.

    A new one is ordered where possible.
    """
    domain = call.services.webapps.domains.get_domain(call.scope, app, host)
    call.services.webapps.certificates.delete_uploaded(call.scope, domain.host, domain.names[1:])
    return DeletedView(deleted=domain.host)
