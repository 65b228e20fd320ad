"""What one can do with the certificates of hosts.

A host is known by its name alone: who may speak of it is decided where domains are, before a verb here is called.
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
from .checking import check_pair, covers, subject_of
from .models import CertificateRow, ChallengeRow, OrderRow
from .records import Certificate, Facts, Ordering, Origin, Pair, Problem, Served

__all__ = [
    "Certificate", "Certificates", "Facts", "Ordering", "Pair", "Problem", "Served", "forget_certificate", "survey",
    "to_certificate",
]  # fmt: skip

log = logging.getLogger(__name__)
FROM_OUTSIDE: tuple[Origin, ...] = ("acme", "uploaded")


@dataclass(frozen=True)
class Issued:
    """A certificate to be stored; `tenant` is None for the appliance's own hosts."""

    host: str
    tenant: str | None
    origin: Origin
    pair: Pair
    facts: Facts
    renew_at: int | None = None


class Certificates:
    """The certificates of all hosts; keys are sealed, and opened for handshakes only."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener()` called after the commit that changes what is served; answers how to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- verbs

    def upload(
        self, scope: TenantScope, host: str, pair: tuple[str, str], chain: str = "", also: Sequence[str] = (),
        may: Callable[[], object] = lambda: None,
    ) -> Certificate:  # fmt: skip
        """Take the certificate and key (PEM) that a person brings for a host, and for those of `also` that it names too;
        ValidationFailed says what is wrong.  `may` is called inside the write, and what it raises keeps the certificate out.
        An order in progress is given up: what it brings must not take this one's place."""
        checked, facts = check_pair(host, *pair, chain)

        def put() -> Certificate:
            may()
            for name in (host, *(name for name in also if covers(facts.names, name))):
                orders.park(name)
                self.store(Issued(name, scope.tenant_id, "uploaded", checked, facts))
            audit.record(scope, "certificate.upload", host, {"fingerprint": facts.fingerprint, "issuer": facts.issuer})
            return self.get(scope, host)

        return db.write(put)

    def get(self, scope: TenantScope, host: str) -> Certificate:
        """What may be shown of the certificate of a host; NotFound."""
        found = self.find(scope, host)
        if found is None:
            raise NotFound(Sentence("there is no certificate for %(host)s here", host=repr(host[:80])))
        return found

    def find(self, scope: TenantScope, host: str) -> Certificate | None:
        """`get`, or None."""
        row = CertificateRow.get_or_none(CertificateRow.host == host, CertificateRow.tenant_id == scope.tenant_id)
        return None if row is None else to_certificate(row)

    def subject(self, scope: TenantScope, host: str) -> str:
        """Whom the certificate of a host names as its subject; many name nobody.  NotFound."""
        row = CertificateRow.get_or_none(CertificateRow.host == host, CertificateRow.tenant_id == scope.tenant_id)
        if row is None:
            raise NotFound(Sentence("there is no certificate for %(host)s here", host=repr(host[:80])))
        return subject_of(row.chain.encode("ascii"))

    def ordering(self, scope: TenantScope, host: str) -> Ordering | None:
        """How far getting or renewing a certificate has come; None where nothing is to be got."""
        row = OrderRow.get_or_none(OrderRow.host == host, OrderRow.tenant_id == scope.tenant_id)
        if row is None:
            return None
        problem = Problem(**row.problem) if row.problem else None
        return Ordering(host, row.order_url is not None, row.failures, row.due_at, problem)

    def delete_uploaded(self, scope: TenantScope, host: str, also: Sequence[str] = ()) -> None:
        """Forget the certificate that was uploaded, and what was uploaded for `also`; NotFound, also for one that was issued."""

        def delete() -> None:
            if self.get(scope, host).origin != "uploaded":
                raise NotFound(Sentence(
                    "no certificate has been uploaded for %(host)s; the one in use was issued by itself", host=repr(host[:80])
                ))
            mine = (CertificateRow.tenant_id == scope.tenant_id) & (CertificateRow.origin == "uploaded")
            CertificateRow.delete().where(mine, CertificateRow.host.in_([host, *also])).execute()
            audit.record(scope, "certificate.delete", host)
            self._told()

        db.write(delete)

    # -- for those that issue and serve

    def store(self, issued: Issued) -> None:
        """Inside a write: this is the certificate of the host from now on."""
        before = CertificateRow.get_or_none(CertificateRow.host == issued.host)
        now, facts = clock.now_ms(), issued.facts
        changed_at = now if before is None else max(now, before.updated_at + 1)  # each change has a stamp of its own
        since = before.since if before is not None and before.tenant_id == issued.tenant else None
        CertificateRow.delete().where(CertificateRow.host == issued.host).execute()
        CertificateRow.insert(
            host=issued.host, tenant_id=issued.tenant, origin=issued.origin, names=list(facts.names),
            chain=issued.pair.chain.decode("ascii"), private_key=self._sealer.seal(issued.pair.private_key, _context(issued.host)),
            key_kind=facts.key, issuer=facts.issuer, fingerprint=facts.fingerprint, not_before=facts.not_before,
            not_after=facts.not_after, since=(since or now) if issued.origin in FROM_OUTSIDE else None,
            renew_at=issued.renew_at, updated_at=changed_at,
        ).execute()  # fmt: skip
        if issued.tenant is not None and issued.origin != "uploaded":
            told = {"fingerprint": facts.fingerprint, "issuer": facts.issuer, "origin": issued.origin}
            audit.record(system_scope(issued.tenant), "certificate.issue", issued.host, told)
        self._told()

    def read_changed(self, known: Mapping[str, str]) -> tuple[dict[str, Served], set[str]]:
        """What is not as in `known` (host → stamp): the certificates that are new or changed, and the hosts that are gone."""
        rows = db.rows("SELECT host, fingerprint, updated_at FROM certificate")
        changed = [host for host, fingerprint, updated_at in rows if known.get(host) != f"{fingerprint}/{updated_at}"]
        found = CertificateRow.select().where(CertificateRow.host.in_(changed)) if changed else ()
        return {row.host: self._served(row) for row in found}, known.keys() - {row[0] for row in rows}

    def challenge(self, host: str, token: str) -> str | None:
        """What an authority expects to read at the host for this token (RFC 8555 § 8.3); None when it asks for nothing."""
        row = ChallengeRow.get_or_none(ChallengeRow.token == token, ChallengeRow.host == host)
        return None if row is None else str(row.answer)

    def seal(self, private_key: bytes, host: str) -> bytes:
        """The key of a host's running order, sealed."""
        return self._sealer.seal(private_key, _context(host))

    def unseal(self, sealed: bytes, host: str) -> bytes:
        """The key again."""
        return self._sealer.open(bytes(sealed), _context(host))

    def _served(self, row: CertificateRow) -> Served:
        # What a tenant brings may name hosts of others: it is offered for the one host it was brought for.
        hosts = (row.host,) if row.tenant_id is not None else tuple(row.names)
        try:
            pair = Pair(row.chain.encode("ascii"), self.unseal(row.private_key, row.host))
        except ConfigInvalid:  # one key that does not open must not take the others with it
            log.exception("the key of %s cannot be opened", row.host)
            pair = None
        return Served(to_certificate(row), hosts, pair)

    def _told(self) -> None:
        for listener in self._listeners:
            db.after_commit(listener)


def forget_certificate(tenant_id: str | None, host: str) -> None:
    """Inside a write: drop the tenant's certificate of a host that it does not serve any more; not that of another tenant."""
    CertificateRow.delete().where(CertificateRow.host == host, CertificateRow.tenant_id == tenant_id).execute()


def expiring_hosts(scope: TenantScope, until: int) -> list[str]:
    """The tenant's hosts whose certificate ends before `until` (epoch ms) or has ended, the earliest first."""
    query = CertificateRow.select(CertificateRow.host).where(
        CertificateRow.tenant_id == scope.tenant_id, CertificateRow.not_after <= until
    )
    return [row.host for row in query.order_by(CertificateRow.not_after, CertificateRow.host)]


def survey() -> list[tuple[str, int | None, Problem | None, int]]:
    """Every host with a certificate or an order: until when it has one, why the last order failed, and when the next begins."""
    held = {row.host: row.not_after for row in CertificateRow.select(CertificateRow.host, CertificateRow.not_after)}
    orders = {row.host: row for row in OrderRow.select(OrderRow.host, OrderRow.due_at, OrderRow.problem)}
    found = []
    for host in sorted({*held, *orders}):
        order = orders.get(host)
        problem = Problem(**order.problem) if order is not None and order.problem else None
        found.append((host, held.get(host), problem, order.due_at if order is not None else 0))
    return found


def to_certificate(row: CertificateRow) -> Certificate:
    """A row as it is shown."""
    facts = Facts(tuple(row.names), row.issuer, row.fingerprint, row.key_kind, row.not_before, row.not_after)
    return Certificate(row.host, row.origin, facts, row.since, row.renew_at, row.updated_at)


def _context(host: str) -> str:
    return f"certificate/{host}"
