"""Data types of custom domains."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from .names import names_of

State = Literal["pending_dns", "verified", "cert_pending", "active", "failed"]
Method = Literal["txt", "http", "operator"]
Redirect = Literal["www", "apex"]
CertificateState = Literal["pending", "active", "failed"]
Finding = Literal["unchecked", "ok", "missing", "wrong", "unknown"]


@dataclass(frozen=True)
class DomainSettings:
    """The operator's settings: the appliance's own domains, its public addresses (networks), and whether the appliance
    terminates HTTPS itself, so that domains need certificates."""

    base: str
    content: str
    public_addresses: tuple[str, ...] = ()
    certificates: bool = False

    def app_host(self, tenant_id: str, app_id: str) -> str:
        """The CNAME target of the app's domains."""
        return f"{app_id}--{tenant_id}.{self.content}"


@dataclass(frozen=True)
class NewDomain:
    """A domain to claim; `redirect_from` names its counterpart with or without `www.`, which redirects (301) to this host."""

    host: str
    method: Method = "txt"
    redirect_from: Redirect | None = None
    primary: bool = False


@dataclass(frozen=True)
class DnsRecord:
    """A DNS record, or file, that the domain needs, and what was observed instead; `advice` says what to do next."""

    purpose: Literal["ownership", "address", "redirect"]
    name: str
    type: Literal["TXT", "CNAME", "A", "HTTP"]
    expected: tuple[str, ...]
    observed: tuple[str, ...] = ()
    finding: Finding = "unchecked"
    advice: str = ""

    def as_json(self) -> dict[str, Any]:
        """As stored in the database."""
        return asdict(self)


@dataclass(frozen=True)
class DomainCertificate:
    """The certificate status of a domain, as reported by the certificate issuer."""

    state: CertificateState
    error: str | None
    next_try: int | None
    not_after: int | None


@dataclass(frozen=True)
class Domain:
    """A custom domain. Times in milliseconds; `leads_here` is None while it is unknown whether the domain points here."""

    app: str
    host: str
    display: str
    state: State
    method: Method
    redirect_from: Redirect | None
    primary: bool
    records: tuple[DnsRecord, ...]
    leads_here: bool | None
    error: str | None
    created_at: int
    created_by: str
    verified_at: int | None
    failing_since: int | None
    checked_at: int | None
    next_check_at: int | None
    certificate: DomainCertificate | None

    @property
    def names(self) -> list[str]:
        """The host, and the name that redirects to it."""
        return names_of(self.host, self.redirect_from)


@dataclass(frozen=True)
class CertifiableHost:
    """A verified name that is served, and so can have a certificate.

    `leads_here` is None when unknown; a public authority cannot reach a name that does not point here.
    """

    tenant: str
    app: str
    host: str
    leads_here: bool | None
