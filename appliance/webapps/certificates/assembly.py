"""From the configuration to the work: which source certificates come from, and how the domains hear of them."""

from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography import x509

from appliance.core.config import Config
from appliance.core.periodic import Periodic
from appliance.tenants import service as tenants
from appliance.webapps.domains import service as domains

from .authority import issue_internal
from .checking import describe
from .issuing import Issuer, Standing, Wish, Worker
from .records import Facts
from .service import Certificates

LOOK_SECONDS, ASK_SECONDS = 2.0, 1800.0


class OwnDomains:
    """The domains of WebApps, and the appliance's own hosts where these are ordered too."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def wishes(self) -> Iterator[Wish]:
        """Every host that wants a certificate; by HTTP only those can be proven that lead here."""
        by_dns = bool(self._config.acme.dns_hook) or not self._config.acme.directory
        for wanted in domains.hosts_wanting_certificates():
            reachable = by_dns or wanted.leads_here is not False
            yield Wish(wanted.host, wanted.tenant, (wanted.host,), reachable)
        if self._config.acme.own_hosts and self._config.acme.directory:
            own = self._config.domains
            yield Wish(own.base, None, (own.base, f"*.{own.base}", f"*.{own.content}"))

    def note(self, wish: Wish, standing: Standing) -> None:
        """Tell the domain."""
        if wish.tenant is not None:
            scope = tenants.system_scope(wish.tenant)
            domains.note_certificate(
                scope, wish.host, standing.state, standing.error, standing.next_try, standing.not_after
            )  # fmt: skip


def certificate_upkeep(config: Config, certificates: Certificates, worker: Worker) -> list[Periodic]:
    """What a process that serves does for certificates; nothing where somebody else does HTTPS."""
    if config.tls_mode == "off":
        return []
    issuer = make_issuer(config, certificates, worker)
    return [
        Periodic("certificate-orders", LOOK_SECONDS, issuer.look),
        Periodic("certificate-renewals", ASK_SECONDS, issuer.ask_renewals),
    ]


def make_issuer(config: Config, certificates: Certificates, worker: Worker) -> Issuer:
    """With the authority of the configuration, or else the built-in one where that serves this appliance."""
    if config.acme.directory:
        # Only here: what speaks ACME costs a tenth of a second and 20 MB, and most appliances never need it.
        from .client import Registration
        from .ordering import Authority, Ordering

        acme = config.acme
        registration = Registration(acme.email, acme.eab_key_id, acme.eab_hmac_key)
        authority = Authority(acme.directory, registration, acme.ca_file, acme.dns_hook, acme.hook_seconds)
        return Issuer(certificates, OwnDomains(config), worker, Ordering(authority, certificates, worker.stopping))
    if config.tls_mode == "internal":
        return Issuer(certificates, OwnDomains(config), worker, lambda host: issue_internal(config, host))
    return Issuer(certificates, OwnDomains(config), worker, None, _of_file(Path(config.server.certificate)))


def _of_file(path: Path) -> Callable[[], Facts]:
    """What the operator's own certificate says, which every host without another one gets."""
    return lambda: describe(x509.load_pem_x509_certificates(path.read_bytes())[0])
