"""What one can do with the domains of WebApps.  Every verb takes a TenantScope first.

A claim is harmless: it reserves nothing and keeps nobody out.  Only a claim that is proven is held, for the whole
appliance; what is given up rests for 30 days, and then needs a new TXT record if another tenant wants it.
"""

import secrets

from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, NotFound, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.webapps.certificates.service import forget_certificate
from appliance.webapps.models import WebAppRow

from . import holding
from .checking import Checker, prove
from .expecting import expected_records
from .looking import Outside
from .lookups import Lookups
from .models import DomainRow
from .names import normalise_host, partner_of, refuse_reserved, to_display
from .records import Certificate, CertificateState, DnsRecord, Domain, NewDomain, Settings, WantedCertificate
from .standing import state_of_proven
from .table import HostTable, note_change

__all__ = [
    "Certificate",
    "CertificateState",
    "DnsRecord",
    "Domain",
    "Domains",
    "NewDomain",
    "Settings",
    "WantedCertificate",
    "forget_tenant",
    "hosts_wanting_certificates",
    "note_certificate",
    "of_config",
    "release_all",
]  # fmt: skip

MOST_DOMAINS = 20
MOST_UNPROVEN = 50  # of a tenant: each is looked at again and again, by the one thread that looks for everybody
_SOON_MS = 30_000


class Domains:
    """The domains of every tenant's WebApps."""

    def __init__(self, settings: Settings, outside: Outside) -> None:
        self.settings = settings
        self.checker = Checker(settings, outside)
        self.table = HostTable()

    def claim_domain(self, scope: TenantScope, app_id: str, new: NewDomain) -> Domain:
        """Claim a host name for an app, to be proven; ValidationFailed, AlreadyExists (also for what another tenant holds)."""
        host = normalise_host(new.host)
        names = [host, *([partner] if (partner := partner_of(host, new.redirect_from)) else [])]
        for name in names:
            refuse_reserved(name, (self.settings.base, self.settings.content))

        def insert() -> Domain:
            scope.get(WebAppRow, id=app_id)
            _refuse_own(scope, names)
            holding.refuse_taken(scope, names)
            if new.method != "txt" and holding.needs_fresh_proof(scope, names):
                raise ValidationFailed("this host name needs the method txt: it has been used here before", pointer="/method")
            if scope.select(DomainRow).where(DomainRow.app_id == app_id).count() >= MOST_DOMAINS:
                raise Conflict(Sentence(
                    "a WebApp has at most %(most_domains)s domains; delete one that is not used", most_domains=MOST_DOMAINS
                ))
            if scope.select(DomainRow).where(DomainRow.verified_at.is_null()).count() >= MOST_UNPROVEN:
                raise Conflict(Sentence(
                    "%(most_unproven)s claims of this tenant wait for their proof; prove or delete some first",
                    most_unproven=MOST_UNPROVEN,
                ))
            now = clock.now_ms()
            row = DomainRow(
                tenant_id=scope.tenant_id, host=host, app_id=app_id, state="pending_dns", method=new.method,
                token=secrets.token_hex(20), redirect_from=new.redirect_from, is_primary=False, records=[], created_at=now,
                created_by=scope.actor, checks=0, tries=0, next_check_at=now + _SOON_MS,
            )  # fmt: skip
            row.records = [record.as_json() for record in expected_records(self.settings, scope.tenant_id, row)]
            scope.insert(DomainRow, **row.__data__)
            audit.record(scope, "domain.claim", host, {"webapp": app_id, "method": new.method, "redirect_from": new.redirect_from})
            if new.primary:
                _make_primary(scope, app_id, host, primary=True)
            return self.get_domain(scope, app_id, host)

        return db.write(insert)

    def list_domains(self, scope: TenantScope, app_id: str, request: PageRequest) -> Page[Domain]:
        """The domains of an app by host."""
        scope.get(WebAppRow, id=app_id)
        fields = {"host": DomainRow.host, "created_at": DomainRow.created_at}
        query = scope.select(DomainRow).where(DomainRow.app_id == app_id)
        return paginate(query, request, fields, default="host", tie="host").map(show)

    def get_domain(self, scope: TenantScope, app_id: str, host: str) -> Domain:
        """One domain; NotFound."""
        return show(find_row(scope, app_id, host))

    def change_domain(self, scope: TenantScope, app_id: str, host: str, *, primary: bool) -> Domain:
        """Make the domain the one that the app's own host sends its visitors to, or not any more."""

        def change() -> Domain:
            row = find_row(scope, app_id, host)
            _make_primary(scope, app_id, row.host, primary=primary)
            audit.record(scope, "domain.change", row.host, {"primary": primary})
            return self.get_domain(scope, app_id, row.host)

        return db.write(change)

    def approve_domain(self, scope: TenantScope, host: str) -> Domain:
        """Take the operator's word for the tenant's claim; NotFound, AlreadyExists when another tenant holds the name."""
        name = normalise_host(host)

        def approve() -> Domain:
            row = scope.get(DomainRow, host=name)
            row.method = "operator"
            if not holding.is_held(scope, name):
                prove(scope, row)
            now = clock.now_ms()
            state = state_of_proven(self.settings, row, leads_here=row.leads_here)
            changes = {
                "method": row.method,
                "state": state,
                "verified_at": now,
                "error": None,
                "failing_since": None,
                "told_at": None,
            }
            # A look that is under way knows nothing of the operator's word: counted as an older one, it writes nothing.
            changes |= {"checks": row.checks + 1, "tries": 0, "next_check_at": now + _SOON_MS}
            scope.update(DomainRow, **changes).where(DomainRow.host == name).execute()
            return show(scope.get(DomainRow, host=name))

        return db.write(approve)

    def verify_domain(self, scope: TenantScope, app_id: str, host: str) -> Domain:
        """Look at the domain now: its proof, and where it leads; NotFound, RateLimited.  Takes seconds."""
        row = find_row(scope, app_id, host)
        self.checker.check_now(scope, row)
        return self.get_domain(scope, app_id, row.host)

    def release_domain(self, scope: TenantScope, app_id: str, host: str) -> None:
        """Give up a domain; if it was held, its names rest for 30 days, in which only this tenant may claim them again."""

        def release() -> None:
            release_row(scope, find_row(scope, app_id, host))

        db.write(release)


def of_config(config: Config, egress: Egress) -> Domains:
    """Domains as the operator has set them up, with certificates of their own where the appliance does HTTPS by itself."""
    own = config.domains
    settings = Settings(own.base, own.content, own.public_addresses, certificates=config.tls_mode != "off")
    return Domains(settings, Outside(settings, Lookups(own.resolvers), egress))


def find_row(scope: TenantScope, app_id: str, host: str) -> DomainRow:
    """The row of a domain, whichever way its host is written; NotFound."""
    try:
        name = normalise_host(host)
    except ValidationFailed as error:
        raise NotFound(Sentence("there is no domain %(host)s here", host=repr(host[:80]))) from error
    return scope.get(DomainRow, app_id=app_id, host=name)


def release_row(scope: TenantScope, row: DomainRow) -> None:
    """Inside a write: delete the claim, and bury what was held."""
    held = holding.release(scope, row.host)
    for name in row.names:
        forget_certificate(scope.tenant_id, name)
    scope.delete(DomainRow).where(DomainRow.host == row.host).execute()
    audit.record(scope, "domain.release", row.host, {"webapp": row.app_id, "held": held})
    note_change()


def hosts_of(scope: TenantScope, app_id: str) -> list[str]:
    """The names an app is served at beside its own."""
    return sorted(row.host for row in scope.select(DomainRow).where(DomainRow.app_id == app_id))


def release_all(scope: TenantScope, app_id: str) -> None:
    """Inside the deletion of an app: give up its domains."""
    for row in scope.select(DomainRow).where(DomainRow.app_id == app_id):
        release_row(scope, row)


def forget_tenant(scope: TenantScope) -> None:
    """Inside the deletion of a tenant: bury what it held."""
    holding.forget_tenant(scope)
    note_change()


def _refuse_own(scope: TenantScope, names: list[str]) -> None:
    """A name belongs to one domain of the tenant, be it the host or the one that redirects."""
    bare = {name.removeprefix("www.") for name in names}
    near = [*bare, *(f"www.{name}" for name in bare)]
    for row in scope.select(DomainRow).where(DomainRow.host.in_(near)):
        if set(names) & set(row.names):
            raise AlreadyExists(
                Sentence("%(host)s is a domain of the WebApp %(app_id)s already", host=row.host, app_id=repr(row.app_id)),
                pointer="/host",
            )


def _make_primary(scope: TenantScope, app_id: str, host: str, *, primary: bool) -> None:
    if primary:
        scope.update(DomainRow, is_primary=False).where(DomainRow.app_id == app_id).execute()
    scope.update(DomainRow, is_primary=primary).where(DomainRow.host == host).execute()
    note_change()


def show(row: DomainRow) -> Domain:
    """The domain of a row."""
    records = tuple(
        DnsRecord(**{**kept, "expected": tuple(kept["expected"]), "observed": tuple(kept["observed"])}) for kept in row.records
    )
    certificate = None
    if row.certificate_state is not None:
        certificate = Certificate(
            row.certificate_state, row.certificate_error, row.certificate_next_try, row.certificate_not_after
        )  # fmt: skip
    return Domain(
        row.app_id, row.host, to_display(row.host), row.state, row.method, row.redirect_from, row.is_primary, records,
        row.leads_here, row.error, row.created_at, row.created_by, row.verified_at, row.failing_since, row.checked_at,
        row.next_check_at, certificate,
    )  # fmt: skip


# -- the seam for whoever gets certificates


def hosts_wanting_certificates() -> list[WantedCertificate]:
    """Every name that is proven and served, over all tenants: those that redirect too."""
    found = db.rows(
        "SELECT n.tenant_id, d.app_id, n.name, d.leads_here FROM domain_name n "
        "JOIN domain d ON d.tenant_id = n.tenant_id AND d.host = n.host ORDER BY n.name"
    )
    return [
        WantedCertificate(str(tenant), str(app), str(name), None if leads is None else bool(leads))
        for tenant, app, name, leads in found
    ]


def note_certificate(
    scope: TenantScope, host: str, state: CertificateState, error: str | None = None, next_try: int | None = None,
    not_after: int | None = None,
) -> bool:  # fmt: skip
    """Say how the certificate of a served name stands: `pending`, `active` (until `not_after`) or `failed`, with why and when
    it is tried next.  The domain follows: cert_pending, active, failed; one whose old certificate still holds stays active, and
    one that does not lead here yet stays verified.
    False when the name is not served any more."""

    def note() -> bool:
        owner = db.rows("SELECT host FROM domain_name WHERE name = ? AND tenant_id = ?", (host, scope.tenant_id))
        row = scope.find(DomainRow, host=owner[0][0]) if owner else None
        if row is None:
            return False
        changes = _of_redirect(row, host, state, error) if host != row.host else _of_host(row, state, error, next_try, not_after)
        scope.update(DomainRow, **changes).where(DomainRow.host == row.host).execute()
        if changes.get("state", row.state) != row.state:
            audit.record(scope, "domain.certificate", row.host, {"state": changes["state"], "error": error})
            note_change()
        return True

    return db.write(note)


def _of_host(
    row: DomainRow, state: CertificateState, error: str | None, next_try: int | None, not_after: int | None
) -> dict[str, object]:  # fmt: skip
    until = not_after if not_after is not None else row.certificate_not_after
    changes: dict[str, object] = {
        "certificate_state": state, "certificate_error": error, "certificate_next_try": next_try, "certificate_not_after": until,
    }  # fmt: skip
    holds = until is not None and until > clock.now_ms()
    if row.state == "verified" and row.leads_here is False:
        return changes  # a certificate alone brings no visitor here: the domain goes on when its DNS does
    if state == "active":
        return changes | {"state": "active"}
    if row.state == "active" and holds:
        return changes
    return changes | {"state": "cert_pending" if state == "pending" else "failed"}


def _of_redirect(row: DomainRow, name: str, state: CertificateState, error: str | None) -> dict[str, object]:
    """The name that redirects has a certificate of its own; the domain only says what is wrong with it."""
    if state == "failed":
        return {"certificate_error": f"{name}: {error}"}
    told = (row.certificate_error or "").startswith(f"{name}:")
    return {"certificate_error": None} if told else {"certificate_error": row.certificate_error}
