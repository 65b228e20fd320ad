"""Wires certificates together: chooses the issuer from the configuration and reports results to the domains."""

from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography import x509

from appliance.core.config import Config
from appliance.core.scheduling import LONG, SLOW, PeriodicJob
from appliance.tenants import service as tenants
from appliance.webapps.domains import service as domains

from .authority import issue_internal
from .issuing import CertificateRequest, CertificateStatus, Issuer, Worker
from .records import CertificateDetails
from .service import Certificates
from .validation import read_details

ROUND_SECONDS, RENEWAL_SECONDS = 2.0, 1800.0


class OwnDomains:
    """Requests certificates for WebApps' domains, and for the appliance's own hosts where configured."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def list_requests(self) -> Iterator[CertificateRequest]:
        """Every host that needs a certificate. With HTTP validation, only hosts that point to this appliance are `reachable`."""
        by_dns = bool(self._config.acme.dns_hook) or not self._config.acme.directory
        for host in domains.list_certifiable_hosts():
            reachable = by_dns or host.leads_here is not False
            yield CertificateRequest(host.host, host.tenant, (host.host,), reachable)
        if self._config.acme.own_hosts and self._config.acme.directory:
            own = self._config.domains
            yield CertificateRequest(own.base, None, (own.base, f"*.{own.base}", f"*.{own.content}"))

    def report_status(self, request: CertificateRequest, status: CertificateStatus) -> None:
        """Store the status on the domain."""
        if request.tenant is not None:
            scope = tenants.system_scope(request.tenant)
            domains.save_certificate_status(
                scope, request.host, status.state, status.error, status.next_try, status.not_after
            )  # fmt: skip


def certificate_tasks(config: Config, certificates: Certificates, worker: Worker) -> list[PeriodicJob]:
    """The periodic certificate tasks of a serving process; none where TLS is terminated elsewhere."""
    if config.tls_mode == "off":
        return []
    issuer = build_issuer(config, certificates, worker)
    return [
        PeriodicJob("certificate-orders", ROUND_SECONDS, issuer.run_round, LONG),
        PeriodicJob("certificate-renewals", RENEWAL_SECONDS, issuer.ask_renewals, SLOW),
    ]


def build_issuer(config: Config, certificates: Certificates, worker: Worker) -> Issuer:
    """Build the issuer: the configured ACME authority, else the built-in authority, else the operator's own certificate."""
    if config.acme.directory:
        # Imported here only: the ACME client costs a tenth of a second and 20 MB, and most appliances never need it.
        from .client import Registration
        from .order_processor import Authority, OrderProcessor

        acme = config.acme
        registration = Registration(acme.email, acme.eab_key_id, acme.eab_hmac_key)
        authority = Authority(acme.directory, registration, acme.ca_file, acme.dns_hook, acme.hook_seconds)
        return Issuer(certificates, OwnDomains(config), worker, OrderProcessor(authority, certificates, worker.stopping))
    if config.tls_mode == "internal":
        return Issuer(certificates, OwnDomains(config), worker, lambda host: issue_internal(config, host))
    return Issuer(certificates, OwnDomains(config), worker, None, _file_reader(Path(config.server.certificate)))


def _file_reader(path: Path) -> Callable[[], CertificateDetails]:
    """Reads the operator's certificate, which serves every host without its own."""
    return lambda: read_details(x509.load_pem_x509_certificates(path.read_bytes())[0])
