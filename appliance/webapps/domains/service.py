"""Operations on the domains of WebApps. Every function takes a TenantScope first.

A claim reserves nothing. Only a verified claim gives the tenant the name, for the whole appliance. A released name is reserved
for 30 days; after that, another tenant needs a new TXT record to verify it.
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

from . import name_ownership
from .checking import DomainChecker, mark_verified
from .expected_records import expected_records
from .host_table import HostTable, mark_changed
from .lookups import Lookups
from .models import DomainRow
from .names import check_not_reserved, normalise_host, partner_of, to_display
from .probing import Prober
from .records import CertifiableHost, CertificateState, DnsRecord, Domain, DomainCertificate, DomainSettings, NewDomain
from .transitions import state_of_verified

__all__ = [
    "CertifiableHost",
    "CertificateState",
    "DnsRecord",
    "Domain",
    "DomainCertificate",
    "DomainSettings",
    "Domains",
    "NewDomain",
    "build_domains",
    "forget_tenant",
    "list_certifiable_hosts",
    "release_all",
    "save_certificate_status",
]  # fmt: skip

MOST_DOMAINS = 20
MOST_UNPROVEN = 50  # per tenant; all are probed repeatedly by a single thread
_SOON_MS = 30_000


class Domains:
    """The custom domains of every tenant's WebApps."""

    def __init__(self, settings: DomainSettings, outside: Prober) -> None:
        self.settings = settings
        self.checker = DomainChecker(settings, outside)
        self.table = HostTable()

    def claim_domain(self, scope: TenantScope, app_id: str, new: NewDomain) -> Domain:
        """Claim a host name for an app; ValidationFailed, AlreadyExists (also when another tenant holds it)."""
        host = normalise_host(new.host)
        names = [host, *([partner] if (partner := partner_of(host, new.redirect_from)) else [])]
        for name in names:
            check_not_reserved(name, (self.settings.base, self.settings.content))

        def insert() -> Domain:
            scope.get(WebAppRow, id=app_id)
            _check_not_claimed(scope, names)
            name_ownership.check_available(scope, names)
            if new.method != "txt" and name_ownership.needs_new_txt_record(scope, names):
                raise ValidationFailed("this host name was used here before, so it needs the method txt", pointer="/method")
            if scope.select(DomainRow).where(DomainRow.app_id == app_id).count() >= MOST_DOMAINS:
                raise Conflict(Sentence(
                    "a WebApp has at most %(most_domains)s domains; delete one that is not used", most_domains=MOST_DOMAINS
                ))
            if scope.select(DomainRow).where(DomainRow.verified_at.is_null()).count() >= MOST_UNPROVEN:
                raise Conflict(Sentence(
                    "this tenant already has %(most_unproven)s unverified domains; verify or delete some first",
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
        """The domains of an app, sorted by host."""
        scope.get(WebAppRow, id=app_id)
        fields = {"host": DomainRow.host, "created_at": DomainRow.created_at}
        query = scope.select(DomainRow).where(DomainRow.app_id == app_id)
        return paginate(query, request, fields, default="host", tie="host").map(to_domain)

    def get_domain(self, scope: TenantScope, app_id: str, host: str) -> Domain:
        """One domain; NotFound."""
        return to_domain(find_row(scope, app_id, host))

    def change_domain(self, scope: TenantScope, app_id: str, host: str, *, primary: bool) -> Domain:
        """Make the domain the app's primary one, to which the app's own host redirects, or make it secondary."""

        def change() -> Domain:
            row = find_row(scope, app_id, host)
            _make_primary(scope, app_id, row.host, primary=primary)
            audit.record(scope, "domain.change", row.host, {"primary": primary})
            return self.get_domain(scope, app_id, row.host)

        return db.write(change)

    def approve_domain(self, scope: TenantScope, host: str) -> Domain:
        """Verify the tenant's claim by the operator's approval; NotFound, AlreadyExists when another tenant holds the name."""
        name = normalise_host(host)

        def approve() -> Domain:
            row = scope.get(DomainRow, host=name)
            row.method = "operator"
            if not name_ownership.is_held(scope, name):
                mark_verified(scope, row)
            now = clock.now_ms()
            state = state_of_verified(self.settings, row, leads_here=row.leads_here)
            changes = {
                "method": row.method,
                "state": state,
                "verified_at": now,
                "error": None,
                "failing_since": None,
                "told_at": None,
            }
            # A probe in progress does not know of the approval; raising `checks` makes it stale, so that it writes nothing.
            changes |= {"checks": row.checks + 1, "tries": 0, "next_check_at": now + _SOON_MS}
            scope.update(DomainRow, **changes).where(DomainRow.host == name).execute()
            return to_domain(scope.get(DomainRow, host=name))

        return db.write(approve)

    def verify_domain(self, scope: TenantScope, app_id: str, host: str) -> Domain:
        """Probe the domain now; NotFound, RateLimited. Takes several seconds."""
        row = find_row(scope, app_id, host)
        self.checker.check_now(scope, row)
        return self.get_domain(scope, app_id, row.host)

    def release_domain(self, scope: TenantScope, app_id: str, host: str) -> None:
        """Release a domain. If it was verified, its names are reserved for this tenant for 30 days."""

        def release() -> None:
            release_row(scope, find_row(scope, app_id, host))

        db.write(release)


def build_domains(config: Config, egress: Egress) -> Domains:
    """Build Domains from the configuration; domains get certificates where the appliance terminates HTTPS itself."""
    own = config.domains
    settings = DomainSettings(own.base, own.content, own.public_addresses, certificates=config.tls_mode != "off")
    return Domains(settings, Prober(settings, Lookups(own.resolvers), egress))


def find_row(scope: TenantScope, app_id: str, host: str) -> DomainRow:
    """The row of a domain, in whatever spelling the host is given; NotFound."""
    try:
        name = normalise_host(host)
    except ValidationFailed as error:
        raise NotFound(Sentence("there is no domain %(host)s here", host=repr(host[:80]))) from error
    return scope.get(DomainRow, app_id=app_id, host=name)


def release_row(scope: TenantScope, row: DomainRow) -> None:
    """Inside a write: delete the claim, and release the names it holds."""
    was_held = name_ownership.release(scope, row.host)
    for name in row.names:
        forget_certificate(scope.tenant_id, name)
    scope.delete(DomainRow).where(DomainRow.host == row.host).execute()
    audit.record(scope, "domain.release", row.host, {"webapp": row.app_id, "held": was_held})
    mark_changed()


def hosts_of(scope: TenantScope, app_id: str) -> list[str]:
    """The app's custom host names."""
    return sorted(row.host for row in scope.select(DomainRow).where(DomainRow.app_id == app_id))


def release_all(scope: TenantScope, app_id: str) -> None:
    """Inside the deletion of an app: release its domains."""
    for row in scope.select(DomainRow).where(DomainRow.app_id == app_id):
        release_row(scope, row)


def forget_tenant(scope: TenantScope) -> None:
    """Inside the deletion of a tenant: release its names."""
    name_ownership.forget_tenant(scope)
    mark_changed()


def _check_not_claimed(scope: TenantScope, names: list[str]) -> None:
    """Each name belongs to at most one domain of the tenant, as its host or as the redirecting name."""
    bare = {name.removeprefix("www.") for name in names}
    related = [*bare, *(f"www.{name}" for name in bare)]
    for row in scope.select(DomainRow).where(DomainRow.host.in_(related)):
        if set(names) & set(row.names):
            raise AlreadyExists(
                Sentence("%(host)s is already a domain of the WebApp %(app_id)s", host=row.host, app_id=repr(row.app_id)),
                pointer="/host",
            )


def _make_primary(scope: TenantScope, app_id: str, host: str, *, primary: bool) -> None:
    if primary:
        scope.update(DomainRow, is_primary=False).where(DomainRow.app_id == app_id).execute()
    scope.update(DomainRow, is_primary=primary).where(DomainRow.host == host).execute()
    mark_changed()


def to_domain(row: DomainRow) -> Domain:
    """Convert a row."""
    records = tuple(
        DnsRecord(**{**stored, "expected": tuple(stored["expected"]), "observed": tuple(stored["observed"])})
        for stored in row.records
    )
    certificate = None
    if row.certificate_state is not None:
        certificate = DomainCertificate(
            row.certificate_state, row.certificate_error, row.certificate_next_try, row.certificate_not_after
        )  # fmt: skip
    return Domain(
        app=row.app_id, host=row.host, display=to_display(row.host), state=row.state, method=row.method,
        redirect_from=row.redirect_from, primary=row.is_primary, records=records, leads_here=row.leads_here, error=row.error,
        created_at=row.created_at, created_by=row.created_by, verified_at=row.verified_at, failing_since=row.failing_since,
        checked_at=row.checked_at, next_check_at=row.next_check_at, certificate=certificate,
    )  # fmt: skip


# -- used by the certificate issuer


def list_certifiable_hosts() -> list[CertifiableHost]:
    """Every verified and served name of all tenants, including redirecting names."""
    rows = db.rows(
        "SELECT n.tenant_id, d.app_id, n.name, d.leads_here FROM domain_name n "
        "JOIN domain d ON d.tenant_id = n.tenant_id AND d.host = n.host ORDER BY n.name"
    )
    return [
        CertifiableHost(str(tenant), str(app), str(name), None if leads is None else bool(leads))
        for tenant, app, name, leads in rows
    ]


def save_certificate_status(
    scope: TenantScope, host: str, state: CertificateState, error: str | None = None, next_try: int | None = None,
    not_after: int | None = None,
) -> bool:  # fmt: skip
    """Store the certificate status of a name: `pending`, `active` (until `not_after`) or `failed`, with the reason and the time
    of the next attempt.

    The domain's state follows, except that an active domain stays active while its previous certificate is valid, and a domain
    that does not point here yet stays verified. Returns False when the name is no longer served.
    """

    def save() -> bool:
        owner = db.rows("SELECT host FROM domain_name WHERE name = ? AND tenant_id = ?", (host, scope.tenant_id))
        row = scope.find(DomainRow, host=owner[0][0]) if owner else None
        if row is None:
            return False
        if host == row.host:
            changes = _changes_of_host(row, state, error, next_try, not_after)
        else:
            changes = _changes_of_redirect(row, host, state, error)
        scope.update(DomainRow, **changes).where(DomainRow.host == row.host).execute()
        if changes.get("state", row.state) != row.state:
            audit.record(scope, "domain.certificate", row.host, {"state": changes["state"], "error": error})
            mark_changed()
        return True

    return db.write(save)


def _changes_of_host(
    row: DomainRow, state: CertificateState, error: str | None, next_try: int | None, not_after: int | None
) -> dict[str, object]:  # fmt: skip
    until = not_after if not_after is not None else row.certificate_not_after
    changes: dict[str, object] = {
        "certificate_state": state, "certificate_error": error, "certificate_next_try": next_try, "certificate_not_after": until,
    }  # fmt: skip
    is_valid = until is not None and until > clock.now_ms()
    if row.state == "verified" and row.leads_here is False:
        return changes  # a certificate is not enough: the domain becomes active when its DNS points here
    if state == "active":
        return changes | {"state": "active"}
    if row.state == "active" and is_valid:
        return changes
    return changes | {"state": "cert_pending" if state == "pending" else "failed"}


def _changes_of_redirect(row: DomainRow, name: str, state: CertificateState, error: str | None) -> dict[str, object]:
    """The redirecting name has its own certificate; the domain only reports its error."""
    if state == "failed":
        return {"certificate_error": f"{name}: {error}"}
    is_of_this_name = (row.certificate_error or "").startswith(f"{name}:")
    return {"certificate_error": None} if is_of_this_name else {"certificate_error": row.certificate_error}
