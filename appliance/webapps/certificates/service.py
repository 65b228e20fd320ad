"""Operations on the certificates of hosts.

Certificates are keyed by host name alone; the caller has already checked that the tenant owns the host.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, NotFound
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants import system_scope

from . import orders
from .models import CertificateRow, ChallengeRow, OrderRow
from .records import Certificate, CertificateDetails, OrderStatus, Origin, Pair, Problem, ServedCertificate
from .validation import check_pair, covers, subject_of

__all__ = [
    "Certificate",
    "CertificateDetails",
    "Certificates",
    "OrderStatus",
    "Pair",
    "Problem",
    "ServedCertificate",
    "forget_certificate",
    "list_host_certificates",
    "to_certificate",
]  # fmt: skip

log = logging.getLogger(__name__)
FROM_OUTSIDE: tuple[Origin, ...] = ("acme", "uploaded")


@dataclass(frozen=True)
class Issued:
    """A certificate to store; `tenant` is None for the appliance's own hosts."""

    host: str
    tenant: str | None
    origin: Origin
    pair: Pair
    facts: CertificateDetails
    renew_at: int | None = None


class Certificates:
    """The certificates of all hosts; private keys are sealed, and opened for TLS handshakes only."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener()` after every commit that changes the certificates; returns a function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- verbs

    def upload(
        self, scope: TenantScope, host: str, pair: tuple[str, str], chain: str = "", also: Sequence[str] = (),
        check: Callable[[], object] = lambda: None,
    ) -> Certificate:  # fmt: skip
        """Store an uploaded certificate and key (PEM) for a host, and for those of `also` that it covers; ValidationFailed.

        `check` runs inside the write, and rejects the upload by raising. A running order is cancelled, so that its certificate
        does not replace this one.
        """
        checked, details = check_pair(host, *pair, chain)

        def save() -> Certificate:
            check()
            for name in (host, *(name for name in also if covers(details.names, name))):
                orders.park(name)
                self.store(Issued(name, scope.tenant_id, "uploaded", checked, details))
            audit.record(scope, "certificate.upload", host, {"fingerprint": details.fingerprint, "issuer": details.issuer})
            return self.get(scope, host)

        return db.write(save)

    def get(self, scope: TenantScope, host: str) -> Certificate:
        """The certificate of a host; NotFound."""
        certificate = self.find(scope, host)
        if certificate is None:
            raise NotFound(Sentence("there is no certificate for %(host)s here", host=repr(host[:80])))
        return certificate

    def find(self, scope: TenantScope, host: str) -> Certificate | None:
        """The certificate of a host, or None."""
        row = CertificateRow.get_or_none(CertificateRow.host == host, CertificateRow.tenant_id == scope.tenant_id)
        return None if row is None else to_certificate(row)

    def get_subject(self, scope: TenantScope, host: str) -> str:
        """The subject of the host's certificate, which is often empty. NotFound."""
        row = CertificateRow.get_or_none(CertificateRow.host == host, CertificateRow.tenant_id == scope.tenant_id)
        if row is None:
            raise NotFound(Sentence("there is no certificate for %(host)s here", host=repr(host[:80])))
        return subject_of(row.chain.encode("ascii"))

    def find_order(self, scope: TenantScope, host: str) -> OrderStatus | None:
        """The state of the host's certificate order; None when no order exists."""
        row = OrderRow.get_or_none(OrderRow.host == host, OrderRow.tenant_id == scope.tenant_id)
        if row is None:
            return None
        problem = Problem(**row.problem) if row.problem else None
        return OrderStatus(host, row.order_url is not None, row.failures, row.due_at, problem)

    def delete_uploaded(self, scope: TenantScope, host: str, also: Sequence[str] = ()) -> None:
        """Delete the uploaded certificates of `host` and `also`; NotFound when the host's certificate was not uploaded."""

        def delete() -> None:
            if self.get(scope, host).origin != "uploaded":
                raise NotFound(Sentence(
                    "no certificate has been uploaded for %(host)s; the current one was issued automatically", host=repr(host[:80])
                ))
            mine = (CertificateRow.tenant_id == scope.tenant_id) & (CertificateRow.origin == "uploaded")
            CertificateRow.delete().where(mine, CertificateRow.host.in_([host, *also])).execute()
            audit.record(scope, "certificate.delete", host)
            self._notify_listeners()

        db.write(delete)

    # -- issuing and serving

    def store(self, issued: Issued) -> None:
        """Inside a write: replace the certificate of the host."""
        previous = CertificateRow.get_or_none(CertificateRow.host == issued.host)
        now, details = clock.now_ms(), issued.facts
        changed_at = now if previous is None else max(now, previous.updated_at + 1)  # every change gets a new stamp
        since = previous.since if previous is not None and previous.tenant_id == issued.tenant else None
        CertificateRow.delete().where(CertificateRow.host == issued.host).execute()
        CertificateRow.insert(
            host=issued.host, tenant_id=issued.tenant, origin=issued.origin, names=list(details.names),
            chain=issued.pair.chain.decode("ascii"), private_key=self._sealer.seal(issued.pair.private_key, _context(issued.host)),
            key_kind=details.key, issuer=details.issuer, fingerprint=details.fingerprint, not_before=details.not_before,
            not_after=details.not_after, since=(since or now) if issued.origin in FROM_OUTSIDE else None,
            renew_at=issued.renew_at, updated_at=changed_at,
        ).execute()  # fmt: skip
        if issued.tenant is not None and issued.origin != "uploaded":
            data = {"fingerprint": details.fingerprint, "issuer": details.issuer, "origin": issued.origin}
            audit.record(system_scope(issued.tenant), "certificate.issue", issued.host, data)
        self._notify_listeners()

    def load_changed(self, known: Mapping[str, str]) -> tuple[dict[str, ServedCertificate], set[str]]:
        """Certificates that differ from `known` (host → stamp), and the hosts that no longer have one."""
        rows = db.rows("SELECT host, fingerprint, updated_at FROM certificate")
        changed = [host for host, fingerprint, updated_at in rows if known.get(host) != f"{fingerprint}/{updated_at}"]
        changed_rows = CertificateRow.select().where(CertificateRow.host.in_(changed)) if changed else ()
        return {row.host: self._to_served(row) for row in changed_rows}, known.keys() - {row[0] for row in rows}

    def find_challenge_answer(self, host: str, token: str) -> str | None:
        """The answer an authority expects at the host for this token (RFC 8555 § 8.3); None when there is none."""
        row = ChallengeRow.get_or_none(ChallengeRow.token == token, ChallengeRow.host == host)
        return None if row is None else str(row.answer)

    def seal(self, private_key: bytes, host: str) -> bytes:
        """Seal the private key of a host's order."""
        return self._sealer.seal(private_key, _context(host))

    def unseal(self, sealed: bytes, host: str) -> bytes:
        """Open a key sealed by `seal`."""
        return self._sealer.open(bytes(sealed), _context(host))

    def _to_served(self, row: CertificateRow) -> ServedCertificate:
        # A tenant's certificate may cover hosts of other tenants, so it is used only for the host it was uploaded for.
        hosts = (row.host,) if row.tenant_id is not None else tuple(row.names)
        try:
            pair = Pair(row.chain.encode("ascii"), self.unseal(row.private_key, row.host))
        except ConfigInvalid:  # one broken key must not affect the others
            log.exception("the key of %s cannot be decrypted", row.host)
            pair = None
        return ServedCertificate(to_certificate(row), hosts, pair)

    def _notify_listeners(self) -> None:
        for listener in self._listeners:
            db.after_commit(listener)


def forget_certificate(tenant_id: str | None, host: str) -> None:
    """Inside a write: delete the certificate of a host that the tenant no longer serves; another tenant's stays."""
    CertificateRow.delete().where(CertificateRow.host == host, CertificateRow.tenant_id == tenant_id).execute()


def expiring_hosts(scope: TenantScope, until: int) -> list[str]:
    """The tenant's hosts whose certificate expires before `until` (epoch ms) or has expired, the earliest first."""
    query = CertificateRow.select(CertificateRow.host).where(
        CertificateRow.tenant_id == scope.tenant_id, CertificateRow.not_after <= until
    )
    return [row.host for row in query.order_by(CertificateRow.not_after, CertificateRow.host)]


def list_host_certificates() -> list[tuple[str, int | None, Problem | None, int]]:
    """Every host with a certificate or an order, as (host, certificate expiry, last problem, next order). Times in
    milliseconds."""
    expiries = {row.host: row.not_after for row in CertificateRow.select(CertificateRow.host, CertificateRow.not_after)}
    orders = {row.host: row for row in OrderRow.select(OrderRow.host, OrderRow.due_at, OrderRow.problem)}
    result = []
    for host in sorted({*expiries, *orders}):
        order = orders.get(host)
        problem = Problem(**order.problem) if order is not None and order.problem else None
        result.append((host, expiries.get(host), problem, order.due_at if order is not None else 0))
    return result


def to_certificate(row: CertificateRow) -> Certificate:
    """Convert a row."""
    details = CertificateDetails(tuple(row.names), row.issuer, row.fingerprint, row.key_kind, row.not_before, row.not_after)
    return Certificate(row.host, row.origin, details, row.since, row.renew_at, row.updated_at)


def _context(host: str) -> str:
    return f"certificate/{host}"
