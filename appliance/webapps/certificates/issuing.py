"""Obtains and renews a certificate for every host that needs one, from ACME or the built-in authority, and reports the status
to its domain."""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from appliance.core import clock
from appliance.core.database import db
from appliance.core.leases import LeaseLost

from . import orders
from .models import CertificateRow, OrderRow
from .records import CertificateDetails, Pair, Problem
from .schedule import renewal_time
from .service import Certificates, Issued, forget_certificate
from .validation import check_pair, covers

log = logging.getLogger(__name__)
MAX_STEPS = 100  # per round
RENEWAL_CHECK_MS = 12 * 3_600_000
NO_SOURCE = "certificates are not issued automatically here: upload one, or ask the operator to set acme.directory"


@dataclass(frozen=True)
class CertificateRequest:
    """A host that needs a certificate; `tenant` is None for the appliance's own hosts, whose certificate covers several
    `names`."""

    host: str
    tenant: str | None
    names: tuple[str, ...]
    reachable: bool = True


@dataclass(frozen=True)
class CertificateStatus:
    """The certificate status of a host, as reported to its domain."""

    state: Literal["pending", "active", "failed"]
    error: str | None = None
    next_try: int | None = None
    not_after: int | None = None


class Domains(Protocol):
    """Lists the hosts that need certificates, and receives their status."""

    def list_requests(self) -> Iterable[CertificateRequest]: ...

    def report_status(self, request: CertificateRequest, status: CertificateStatus) -> None: ...


@dataclass(frozen=True)
class Worker:
    """Identifies this process among those that share the orders; `stopping` is set when it shuts down."""

    instance: str
    is_alive: Callable[[str], bool]
    stopping: threading.Event = field(default_factory=threading.Event)


class Orders(Protocol):
    """Works on ACME orders; the implementation is imported only where an authority is configured."""

    def advance(self, row: OrderRow) -> None: ...

    def withdraw(self, row: OrderRow) -> None: ...

    def fetch_renewal_time(self, chain: str) -> int | None: ...


class Issuer:
    """Runs rounds that keep the certificates of all hosts up to date."""

    def __init__(
        self, certificates: Certificates, domains: Domains, worker: Worker, source: Orders | Callable[[str], Pair] | None,
        shared: Callable[[], CertificateDetails] | None = None,
    ) -> None:  # fmt: skip
        """`source` works on ACME orders, or is a function that issues a certificate at once; `shared` reads the details of the
        certificate that serves every host without its own."""
        self._certificates = certificates
        self._domains = domains
        self._worker = worker
        self._source = source
        self._shared = shared
        self._reported: dict[str, CertificateStatus] = {}

    def run_round(self) -> None:
        """Run one round: plan orders, advance each due order by one step, and report the status to the domains."""
        requests = {request.host: request for request in self._domains.list_requests()}
        try:
            self._plan(requests)
            for _ in range(MAX_STEPS):
                if self._worker.stopping.is_set():
                    return
                row = orders.claim(self._worker.instance, self._worker.is_alive) if self._source is not None else None
                if row is None:
                    break
                self._work(row)
        except orders.Stopped:
            return
        self._report(requests)

    # -- planning

    def _plan(self, requests: dict[str, CertificateRequest]) -> None:
        now = clock.now_ms()
        orders_by_host = {row.host: row for row in OrderRow.select()}
        certificates = {row.host: row for row in CertificateRow.select(*_STATUS_FIELDS)}
        for host in [host for host, row in certificates.items() if host in requests and requests[host].tenant != row.tenant_id]:
            db.write(lambda host=host, tenant=certificates[host].tenant_id: forget_certificate(tenant, host))  # type: ignore[misc]
            del certificates[host]
        for host, order in orders_by_host.items():
            request = requests.get(host)
            if order.due_at != orders.NEVER and (not _is_for(order, request) or _has_valid_upload(certificates.get(host), now)):
                db.write(lambda host=host: orders.park(host))  # type: ignore[misc]
                order.due_at = orders.NEVER
            if order.due_at == orders.NEVER and (order.answered or not orders.recent_attempts(order)):
                self._clear(order)
        if orders.has_orphaned_challenges():
            db.write(orders.delete_orphaned_challenges)
        if self._source is None:
            return
        for host, request in requests.items():
            certificate, order = certificates.get(host), orders_by_host.get(host)
            is_planned = order is not None and order.due_at != orders.NEVER
            if is_planned or not request.reachable or _has_valid_upload(certificate, now):
                continue
            due = now
            if certificate is not None and certificate.renew_at and _is_valid(certificate, request, now):
                due = certificate.renew_at
            db.write(lambda request=request, due=due: orders.plan(request.host, request.tenant, request.names, due))  # type: ignore[misc]

    def _clear(self, order: OrderRow) -> None:
        """Withdraw what a parked order has published, and delete the order once nothing of it is left."""
        if order.answered and self._source is not None and not callable(self._source):
            self._source.withdraw(order)
        db.write(lambda: orders.note_withdrawn(order.host))

    # -- working

    def _work(self, row: OrderRow) -> None:
        try:
            self._step(row)
        except LeaseLost:
            log.warning("the order for %s was claimed by another process or cancelled", row.host)
            if self._source is not None and not callable(self._source) and not orders.is_running(row):
                self._source.withdraw(row)  # published after the order was cancelled
        except orders.Stopped:
            log.info("the order for %s is handed over to the next process", row.host)
            orders.hand_over(row)
        except Exception as error:
            # A bug must not repeat requests to the authority forever: it counts as a failure of the order.
            log.exception("the order for %s failed with an unexpected error", row.host)
            detail = f"an unexpected error, see the appliance log ({type(error).__name__})"
            orders.fail(row, Problem("internal", detail, clock.now_ms()))

    def _step(self, row: OrderRow) -> None:
        if self._source is None:
            raise RuntimeError("no certificate source is configured")
        if not callable(self._source):
            self._source.advance(row)
        else:
            pair = self._source(row.host)
            checked, details = check_pair(row.host, pair.chain.decode("ascii"), pair.private_key.decode("ascii"))
            renew_at = renewal_time(row.host, details.not_before, details.not_after)

            def store() -> None:
                orders.complete(row, renew_at)
                self._certificates.store(Issued(row.host, row.tenant_id, "internal", checked, details, renew_at))

            db.write(store)

    def ask_renewals(self) -> None:
        """Ask the authority when each certificate should be renewed (RFC 9773), twice a day."""
        if self._source is None or callable(self._source):
            return
        now = clock.now_ms()
        due = (CertificateRow.asked_at.is_null()) | (CertificateRow.asked_at <= now - RENEWAL_CHECK_MS)
        rows = CertificateRow.select().where(CertificateRow.origin == "acme", CertificateRow.renew_at > now, due)
        for row in rows:
            try:
                suggested = self._source.fetch_renewal_time(row.chain)
            except orders.Stopped:
                return
            at = row.renew_at if suggested is None else min(suggested, row.not_after)
            db.write(lambda row=row, at=at: _save_renewal_time(row, at, now))  # type: ignore[misc]

    # -- telling

    def _report(self, requests: dict[str, CertificateRequest]) -> None:
        certificates = {row.host: row for row in CertificateRow.select(*_STATUS_FIELDS)}
        running = {row.host: row for row in OrderRow.select()}
        self._reported = {host: reported for host, reported in self._reported.items() if host in requests}
        for host, request in requests.items():
            status = self._get_status(request, certificates.get(host), running.get(host))
            if self._reported.get(host) != status and (request.reachable or status.state != "pending"):
                self._domains.report_status(request, status)
                self._reported[host] = status

    def _get_status(
        self, request: CertificateRequest, certificate: CertificateRow | None, order: OrderRow | None
    ) -> CertificateStatus:
        error, next_try = None, None
        if order is not None and order.problem is not None:
            error, next_try = f"{order.problem['detail']} ({order.problem['type']})", order.due_at
        if certificate is not None and certificate.not_after > clock.now_ms():
            return CertificateStatus("active", error, next_try, certificate.not_after)
        if self._source is None:
            return self._get_fallback_status(request)
        return CertificateStatus("failed" if error else "pending", error, next_try)

    def _get_fallback_status(self, request: CertificateRequest) -> CertificateStatus:
        details = self._shared() if self._shared is not None else None
        if details is not None and covers(details.names, request.host) and details.not_after > clock.now_ms():
            return CertificateStatus("active", None, None, details.not_after)
        return CertificateStatus("failed", NO_SOURCE)


_STATUS_FIELDS = (
    CertificateRow.host, CertificateRow.tenant_id, CertificateRow.origin, CertificateRow.names, CertificateRow.not_after,
    CertificateRow.renew_at,
)  # fmt: skip


def _has_valid_upload(certificate: CertificateRow | None, now: int) -> bool:
    """Whether a valid uploaded certificate serves the host, so that none must be ordered."""
    return certificate is not None and certificate.origin == "uploaded" and certificate.not_after > now


def _is_for(order: OrderRow, request: CertificateRequest | None) -> bool:
    return request is not None and request.tenant == order.tenant_id and request.names == tuple(order.names)


def _is_valid(certificate: CertificateRow, request: CertificateRequest, now: int) -> bool:
    return certificate.not_after > now and all(covers(certificate.names, name) for name in request.names)


def _save_renewal_time(row: CertificateRow, renew_at: int, asked_at: int) -> None:
    is_same = (CertificateRow.host == row.host) & (CertificateRow.fingerprint == row.fingerprint)
    if CertificateRow.update(renew_at=renew_at, asked_at=asked_at).where(is_same).execute() and renew_at != row.renew_at:
        idle = (OrderRow.host == row.host) & (OrderRow.order_url.is_null()) & (OrderRow.failures == 0)
        OrderRow.update(due_at=renew_at).where(idle).execute()
