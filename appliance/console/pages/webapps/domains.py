"""The page of a WebApp's domains: the expected and actual DNS records of each, its certificate, and the next step."""

from dataclasses import dataclass

from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.pages import MAX_LIMIT, PageRequest
from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.webapps.certificates import Certificate
from appliance.webapps.domains import Domain, NewDomain

METHODS = (
    ("txt", mark("TXT record"), mark("Works at any time, even while the name points elsewhere.")),
    ("http", mark("File on the current server"), mark("For a name that another server currently serves.")),
    ("operator", mark("Operator approval"), mark("The operator of this appliance approves it with gos domain approve.")),
)
REDIRECTS = (
    ("", mark("Nothing")), ("www", mark("The same name with www.")),
    ("apex", mark("The same name without www.")),
)  # fmt: skip
# What each state of a domain means.
MEANINGS = {
    "pending_dns": mark("Ownership is not verified yet. The domain is not served."),
    "verified": mark("Verified. Served as soon as its DNS points here."),
    "cert_pending": mark("Verified and served. Its certificate is being issued."),
    "active": mark("Served."),
    "failed": mark("Action needed: see below."),
}
PURPOSES = {"ownership": mark("Verification"), "address": mark("Address"), "redirect": mark("Redirect")}
ORIGINS = {"uploaded": mark("uploaded"), "acme": mark("issued automatically"), "internal": mark("issued by the built-in CA")}
_AT = "/webapps/<app>/domains"


@dataclass(frozen=True)
class StoredCertificate:
    """A stored certificate with its subject and the hosts that it serves."""

    hosts: list[str]
    certificate: Certificate
    subject: str


@page("GET", _AT, scope="webapps.read")
def show_domains(visit: Visit, app: str) -> Answer:
    """Every domain of the app."""
    return domains_page(visit, app)


def domains_page(
    visit: Visit, app_id: str, problem: ApplianceError | None = None, *, of_certificate: str | None = None
) -> Page:  # fmt: skip
    """Every domain of the app; `problem` is an error, about the certificate of the host `of_certificate` if that is given."""
    services, request = visit.services, visit.request
    domains = services.webapps.domains.list_domains(visit.scope, app_id, PageRequest(limit=MAX_LIMIT)).items
    values = {
        "app": services.webapps.apps.get_app(visit.scope, app_id),
        "domains": [(each, _meaning(each), _stored_certificates(visit, each)) for each in domains],
        "problem": problem, "of_certificate": of_certificate, "origins": ORIGINS, "now": clock.now_ms(),
        "serves_https": services.config.tls_mode != "off",
        "entered": {name: request.field(name) for name in ("certificate", "chain")},
        "methods": METHODS, "redirects": REDIRECTS, "purposes": PURPOSES, "host": request.field("host"),
        "method": request.field("method") or "txt", "redirect_from": request.field("redirect_from"),
        "primary": request.field("primary"),
    }  # fmt: skip
    return Page("domains.html", values, problem.status if problem else 200)


def _stored_certificates(visit: Visit, domain: Domain) -> list[StoredCertificate]:
    """The stored certificates of the domain and of the name that redirects to it."""
    certificates = visit.services.webapps.certificates
    by_fingerprint: dict[str, StoredCertificate] = {}
    for host in domain.names:
        each = certificates.find(visit.scope, host)
        if each is not None and each.facts.fingerprint in by_fingerprint:
            by_fingerprint[each.facts.fingerprint].hosts.append(host)
        elif each is not None:
            by_fingerprint[each.facts.fingerprint] = StoredCertificate([host], each, certificates.get_subject(visit.scope, host))
    return list(by_fingerprint.values())


def _meaning(domain: Domain) -> str:
    if domain.failing_since is not None:
        return _("There is a problem. The domain is released if it lasts for seven days.")
    return _(MEANINGS[domain.state])


@page("POST", _AT, scope="webapps.write")
def claim_domain(visit: Visit, app: str) -> Answer:
    """Claim a domain for the app."""
    request = visit.request
    method, redirect = request.field("method"), request.field("redirect_from")
    try:
        if method not in {each[0] for each in METHODS} or redirect not in dict(REDIRECTS):
            raise ValidationFailed("choose how to verify the domain, and which name redirects to it")
        new = NewDomain(request.field("host"), method, redirect or None, request.field("primary") == "true")  # type: ignore[arg-type]
        visit.services.webapps.domains.claim_domain(visit.scope, app, new)
    except ApplianceError as refusal:
        return domains_page(visit, app, refusal)
    return _redirect_to_domains(app)


@page("POST", f"{_AT}/<host>/verify", scope="webapps.write")
def verify_domain(visit: Visit, app: str, host: str) -> Answer:
    """Verify a domain now."""
    try:
        visit.services.webapps.domains.verify_domain(visit.scope, app, host)
    except ApplianceError as refusal:
        return domains_page(visit, app, refusal)
    return _redirect_to_domains(app)


@page("POST", f"{_AT}/<host>/primary", scope="webapps.write")
def make_primary(visit: Visit, app: str, host: str) -> Answer:
    """Make a domain the primary one, to which the app's own host redirects, or stop the redirect."""
    visit.services.webapps.domains.change_domain(visit.scope, app, host, primary=visit.request.field("primary") == "true")
    return _redirect_to_domains(app)


@page("POST", f"{_AT}/<host>/release", scope="webapps.write")
def release_domain(visit: Visit, app: str, host: str) -> Answer:
    """Release a domain."""
    visit.services.webapps.domains.release_domain(visit.scope, app, host)
    return _redirect_to_domains(app)


def _redirect_to_domains(app: str) -> Redirect:
    return Redirect(f"/console/webapps/{app}/domains")
