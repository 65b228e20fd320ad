"""Upload of certificates for WebApps' domains."""

from collections.abc import Callable

from appliance.core.errors import Conflict
from appliance.core.scope import TenantScope
from appliance.webapps.domains.records import Domain

from .records import Certificate
from .service import Certificates


def upload_certificate(
    scope: TenantScope, certificates: Certificates, find: Callable[[], Domain], pair: tuple[str, str], chain: str = ""
) -> Certificate:
    """Serve the domain returned by `find` with this certificate and key (PEM), and its redirecting name if the certificate
    covers it. Conflict until the domain is verified, ValidationFailed."""

    def find_verified() -> Domain:
        domain = find()
        if domain.verified_at is None:
            raise Conflict("this domain is not verified yet; verify it before you upload its certificate")
        return domain

    domain = find_verified()
    return certificates.upload(scope, domain.host, pair, chain, domain.names[1:], find_verified)
