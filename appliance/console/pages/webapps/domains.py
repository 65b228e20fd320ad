"""The doctor of a WebApp's domains: what is to be in the DNS, what was seen there, and what to do next."""

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
# What each state means to whoever waits for the next one.
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
class Stored:
    """A certificate that is kept for hosts, and whom it names as its subject."""

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
    """Every domain of the app; with what was wrong, perhaps with the certificate that was brought for one of them."""
    services, asked = visit.services, visit.asked
    found = services.domains.list_domains(visit.scope, app_id, PageRequest(limit=MAX_LIMIT)).items
    values = {
        "app": services.webapps.get_app(visit.scope, app_id),
        "domains": [(each, _meaning(each), _stored(visit, each)) for each in found],
        "problem": problem, "of_certificate": of_certificate, "origins": ORIGINS, "now": clock.now_ms(),
        "serves_https": services.config.tls_mode != "off", "given": {name: asked.field(name) for name in ("certificate", "chain")},
        "methods": METHODS, "redirects": REDIRECTS, "purposes": PURPOSES, "host": asked.field("host"),
        "method": asked.field("method") or "txt", "redirect_from": asked.field("redirect_from"), "primary": asked.field("primary"),
    }  # fmt: skip
    return Page("domains.html", values, problem.status if problem else 200)


def _stored(visit: Visit, domain: Domain) -> list[Stored]:
    """The certificates that are kept for the domain and for the name that redirects to it."""
    certificates = visit.services.certificates
    found: dict[str, Stored] = {}
    for host in domain.names:
        each = certificates.find(visit.scope, host)
        if each is not None and each.facts.fingerprint in found:
            found[each.facts.fingerprint].hosts.append(host)
        elif each is not None:
            found[each.facts.fingerprint] = Stored([host], each, certificates.subject(visit.scope, host))
    return list(found.values())


def _meaning(domain: Domain) -> str:
    if domain.failing_since is not None:
        return _("There is a problem. The domain is released if it lasts for seven days.")
    return _(MEANINGS[domain.state])


@page("POST", _AT, scope="webapps.write")
def claim_domain(visit: Visit, app: str) -> Answer:
    """Claim a name."""
    asked = visit.asked
    method, redirect = asked.field("method"), asked.field("redirect_from")
    try:
        if method not in {each[0] for each in METHODS} or redirect not in dict(REDIRECTS):
            raise ValidationFailed("choose how the name is proven, and what redirects to it")
        new = NewDomain(asked.field("host"), method, redirect or None, asked.field("primary") == "true")  # type: ignore[arg-type]
        visit.services.domains.claim_domain(visit.scope, app, new)
    except ApplianceError as refusal:
        return domains_page(visit, app, refusal)
    return _back(app)


@page("POST", f"{_AT}/<host>/verify", scope="webapps.write")
def verify_domain(visit: Visit, app: str, host: str) -> Answer:
    """Look at a domain now."""
    try:
        visit.services.domains.verify_domain(visit.scope, app, host)
    except ApplianceError as refusal:
        return domains_page(visit, app, refusal)
    return _back(app)


@page("POST", f"{_AT}/<host>/primary", scope="webapps.write")
def make_primary(visit: Visit, app: str, host: str) -> Answer:
    """Have the app's own host send its visitors here, or not any more."""
    visit.services.domains.change_domain(visit.scope, app, host, primary=visit.asked.field("primary") == "true")
    return _back(app)


@page("POST", f"{_AT}/<host>/release", scope="webapps.write")
def release_domain(visit: Visit, app: str, host: str) -> Answer:
    """Give a domain up."""
    visit.services.domains.release_domain(visit.scope, app, host)
    return _back(app)


def _back(app: str) -> Redirect:
    return Redirect(f"/console/webapps/{app}/domains")
