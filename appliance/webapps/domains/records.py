"""What crosses the border of this domain."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from .names import names_of

State = Literal["pending_dns", "verified", "cert_pending", "active", "failed"]
Method = Literal["txt", "http", "operator"]
Redirect = Literal["www", "apex"]
CertificateState = Literal["pending", "active", "failed"]
Finding = Literal["unchecked", "ok", "missing", "wrong", "unknown"]


@dataclass(frozen=True)
class Settings:
    """What the operator says: the appliance's own domains, its public addresses (networks), and whether it serves HTTPS
    by itself, so that a domain needs a certificate."""

    base: str
    content: str
    public_addresses: tuple[str, ...] = ()
    certificates: bool = False

    def app_host(self, tenant_id: str, app_id: str) -> str:
        """Where a CNAME of one of the app's domains leads."""
        return f"{app_id}--{tenant_id}.{self.content}"


@dataclass(frozen=True)
class NewDomain:
    """A claim; `redirect_from` names the other of a pair with and without `www.`, which answers 301 to this one."""

    host: str
    method: Method = "txt"
    redirect_from: Redirect | None = None
    primary: bool = False


@dataclass(frozen=True)
class DnsRecord:
    """A record that is to be there, or a file, and what was seen instead; `advice` says what to do next."""

    purpose: Literal["ownership", "address", "redirect"]
    name: str
    type: Literal["TXT", "CNAME", "A", "HTTP"]
    expected: tuple[str, ...]
    observed: tuple[str, ...] = ()
    finding: Finding = "unchecked"
    advice: str = ""

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)


@dataclass(frozen=True)
class Certificate:
    """How the domain's certificate stands, as whoever gets it has said."""

    state: CertificateState
    error: str | None
    next_try: int | None
    not_after: int | None


@dataclass(frozen=True)
class Domain:
    """One domain.  Times in milliseconds; `leads_here` is None while that cannot be told."""

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
    certificate: Certificate | None

    @property
    def names(self) -> list[str]:
        """The host, and the name that redirects to it."""
        return names_of(self.host, self.redirect_from)


@dataclass(frozen=True)
class WantedCertificate:
    """A name that is proven and served, so that a certificate may be had for it.

    `leads_here` is None where nobody can tell; a public authority finds a name that does not lead here unreachable.
    """

    tenant: str
    app: str
    host: str
    leads_here: bool | None
