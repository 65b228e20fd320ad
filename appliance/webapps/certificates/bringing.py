"""Certificates that people bring for the domains of their WebApps."""

from collections.abc import Callable

from appliance.core.errors import Conflict
from appliance.core.scope import TenantScope
from appliance.webapps.domains.records import Domain

from .records import Certificate
from .service import Certificates


def bring_certificate(
    scope: TenantScope, certificates: Certificates, find: Callable[[], Domain], pair: tuple[str, str], chain: str = ""
) -> Certificate:
    """Serve the domain that `find` answers with this certificate and key (PEM), and the name that redirects to it if it is named
    too; Conflict while the domain is not proven, ValidationFailed."""

    def find_proven() -> Domain:
        domain = find()
        if domain.verified_at is None:
            raise Conflict("this domain has not been proven yet; do that first, then bring its certificate")
        return domain

    domain = find_proven()
    return certificates.upload(scope, domain.host, pair, chain, domain.names[1:], find_proven)
