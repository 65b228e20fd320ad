"""Upload and deletion of certificates for a WebApp's domains."""

from functools import partial

from appliance.console.frame.routing import Answer, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound
from appliance.webapps.certificates import upload_certificate

from .domains import domains_page

_AT = "/webapps/<app>/domains/<host>/certificate"


@page("POST", _AT, scope="webapps.publish")
def put_certificate(visit: Visit, app: str, host: str) -> Answer:
    """Upload a certificate to serve the domain with."""
    domain = visit.services.webapps.domains.get_domain(visit.scope, app, host)
    certificate, key, chain = (visit.request.field(name) for name in ("certificate", "private_key", "chain"))
    try:
        find = partial(visit.services.webapps.domains.get_domain, visit.scope, app, domain.host)
        upload_certificate(visit.scope, visit.services.webapps.certificates, find, (certificate, key), chain)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return domains_page(visit, app, refusal, of_certificate=domain.host)
    return Redirect(f"/console/webapps/{app}/domains")


@page("POST", f"{_AT}/delete", scope="webapps.publish")
def delete_certificate(visit: Visit, app: str, host: str) -> Answer:
    """Delete the uploaded certificate."""
    domain = visit.services.webapps.domains.get_domain(visit.scope, app, host)
    visit.services.webapps.certificates.delete_uploaded(visit.scope, domain.host, domain.names[1:])
    return Redirect(f"/console/webapps/{app}/domains")
