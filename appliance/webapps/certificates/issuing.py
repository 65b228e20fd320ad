"""Every host that wants a certificate gets one: by ACME, or by the built-in authority; and its domain is told how that goes."""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from appliance.core import clock
from appliance.core.database import db

from . import orders
from .checking import check_pair, covers
from .models import CertificateRow, OrderRow
from .records import Facts, Pair, Problem
from .schedule import renewal_time
from .service import Certificates, Issued, forget_certificate

log = logging.getLogger(__name__)
MOST_STEPS = 100  # of one round
ASK_EVERY = 12 * 3_600_000
NOBODY = "no certificate can be got by itself: upload one, or have the operator set acme.directory"


@dataclass(frozen=True)
class Wish:
    """A host that wants a certificate; `tenant` is None for the appliance's own, which ask for several `names`."""

    host: str
    tenant: str | None
    names: tuple[str, ...]
    reachable: bool = True


@dataclass(frozen=True)
class Standing:
    """How the certificate of a host stands, as its domain is told."""

    state: Literal["pending", "active", "failed"]
    error: str | None = None
    next_try: int | None = None
    not_after: int | None = None


class Domains(Protocol):
    """Where the hosts come from, and where it is told how their certificates stand."""

    def wishes(self) -> Iterable[Wish]: ...

    def note(self, wish: Wish, standing: Standing) -> None: ...


@dataclass(frozen=True)
class Worker:
    """This process among those that share the orders; `stopping` is set when it is to end."""

    instance: str
    is_alive: Callable[[str], bool]
    stopping: threading.Event = field(default_factory=threading.Event)


class Orders(Protocol):
    """An authority that takes orders; the class that does so is loaded only where one is configured."""

    def advance(self, row: OrderRow) -> None: ...

    def withdraw(self, row: OrderRow) -> None: ...

    def ask_renewal_time(self, chain: str) -> int | None: ...


class Issuer:
    """Looks, again and again, after every host."""

    def __init__(
        self, certificates: Certificates, domains: Domains, worker: Worker, source: Orders | Callable[[str], Pair] | None,
        shared: Callable[[], Facts] | None = None,
    ) -> None:  # fmt: skip
        """`source` takes orders, or is a function that signs for a host at once; `shared` tells what the certificate says that
        every host without its own gets."""
        self._certificates = certificates
        self._domains = domains
        self._worker = worker
        self._source = source
        self._shared = shared
        self._noted: dict[str, Standing] = {}

    def look(self) -> None:
        """One round: plan what is wanted, take one step with each order that is due, tell the domains."""
        wishes = {wish.host: wish for wish in self._domains.wishes()}
        try:
            self._plan(wishes)
            for _ in range(MOST_STEPS):
                if self._worker.stopping.is_set():
                    return
                row = orders.claim(self._worker.instance, self._worker.is_alive) if self._source is not None else None
                if row is None:
                    break
                self._work(row)
        except orders.Stopped:
            return
        self._tell(wishes)

    # -- planning

    def _plan(self, wishes: dict[str, Wish]) -> None:
        now = clock.now_ms()
        planned = {row.host: row for row in OrderRow.select()}
        held = {row.host: row for row in CertificateRow.select(*_LIGHT)}
        for host in [host for host, row in held.items() if host in wishes and wishes[host].tenant != row.tenant_id]:
            db.write(lambda host=host, tenant=held[host].tenant_id: forget_certificate(tenant, host))  # type: ignore[misc]
            del held[host]
        for host, order in planned.items():
            wish = wishes.get(host)
            if order.due_at != orders.NEVER and (not _is_for(order, wish) or _rests(held.get(host), now)):
                db.write(lambda host=host: orders.park(host))  # type: ignore[misc]
                order.due_at = orders.NEVER
            if order.due_at == orders.NEVER and (order.answered or not orders.recent_tries(order)):
                self._clear(order)
        if orders.has_strays():
            db.write(orders.forget_strays)
        if self._source is None:
            return
        for host, wish in wishes.items():
            known, order = held.get(host), planned.get(host)
            stands = order is not None and order.due_at != orders.NEVER
            if stands or not wish.reachable or _rests(known, now):
                continue
            due = known.renew_at if known is not None and known.renew_at and _is_good(known, wish, now) else now
            db.write(lambda wish=wish, due=due: orders.plan(wish.host, wish.tenant, wish.names, due))  # type: ignore[misc]

    def _clear(self, order: OrderRow) -> None:
        """Take back what a parked order has published, and drop it as soon as nothing of it counts."""
        if order.answered and self._source is not None and not callable(self._source):
            self._source.withdraw(order)
        db.write(lambda: orders.note_withdrawn(order.host))

    # -- working

    def _work(self, row: OrderRow) -> None:
        try:
            self._step(row)
        except orders.OrderLost:
            log.warning("the order for %s went to another process, or is not wanted any more", row.host)
            if self._source is not None and not callable(self._source) and not orders.is_running(row):
                self._source.withdraw(row)  # what was published after the order had been given up
        except orders.Stopped:
            log.info("the order for %s is left to the next process", row.host)
            orders.hand_over(row)
        except Exception as error:
            # A mistake of ours must not ask the authority for ever: it counts as a failure of the order.
            log.exception("the order for %s came upon a mistake", row.host)
            detail = f"an unexpected error, which the log of the appliance shows in full ({type(error).__name__})"
            orders.end_badly(row, Problem("internal", detail, clock.now_ms()))

    def _step(self, row: OrderRow) -> None:
        if self._source is None:
            raise RuntimeError("nothing is ordered without a source")
        if not callable(self._source):
            self._source.advance(row)
        else:
            pair = self._source(row.host)
            checked, facts = check_pair(row.host, pair.chain.decode("ascii"), pair.private_key.decode("ascii"))
            renew_at = renewal_time(row.host, facts.not_before, facts.not_after)

            def store() -> None:
                orders.end_well(row, renew_at)
                self._certificates.store(Issued(row.host, row.tenant_id, "internal", checked, facts, renew_at))

            db.write(store)

    def ask_renewals(self) -> None:
        """Ask the authority when it wishes its certificates to be renewed (RFC 9773), each twice a day."""
        if self._source is None or callable(self._source):
            return
        now = clock.now_ms()
        due = (CertificateRow.asked_at.is_null()) | (CertificateRow.asked_at <= now - ASK_EVERY)
        found = CertificateRow.select().where(CertificateRow.origin == "acme", CertificateRow.renew_at > now, due)
        for row in found:
            try:
                wish = self._source.ask_renewal_time(row.chain)
            except orders.Stopped:
                return
            at = row.renew_at if wish is None else min(wish, row.not_after)
            db.write(lambda row=row, at=at: _note_wish(row, at, now))  # type: ignore[misc]

    # -- telling

    def _tell(self, wishes: dict[str, Wish]) -> None:
        certificates = {row.host: row for row in CertificateRow.select(*_LIGHT)}
        running = {row.host: row for row in OrderRow.select()}
        self._noted = {host: standing for host, standing in self._noted.items() if host in wishes}
        for host, wish in wishes.items():
            standing = self._standing(wish, certificates.get(host), running.get(host))
            if self._noted.get(host) != standing and (wish.reachable or standing.state != "pending"):
                self._domains.note(wish, standing)
                self._noted[host] = standing

    def _standing(self, wish: Wish, held: CertificateRow | None, order: OrderRow | None) -> Standing:
        error, next_try = None, None
        if order is not None and order.problem is not None:
            error, next_try = f"{order.problem['detail']} ({order.problem['type']})", order.due_at
        if held is not None and held.not_after > clock.now_ms():
            return Standing("active", error, next_try, held.not_after)
        if self._source is None:
            return self._without(wish)
        return Standing("failed" if error else "pending", error, next_try)

    def _without(self, wish: Wish) -> Standing:
        facts = self._shared() if self._shared is not None else None
        if facts is not None and covers(facts.names, wish.host) and facts.not_after > clock.now_ms():
            return Standing("active", None, None, facts.not_after)
        return Standing("failed", NOBODY)


_LIGHT = (
    CertificateRow.host, CertificateRow.tenant_id, CertificateRow.origin, CertificateRow.names, CertificateRow.not_after,
    CertificateRow.renew_at,
)  # fmt: skip


def _rests(held: CertificateRow | None, now: int) -> bool:
    """Whether a person's own certificate serves, so that none is to be got."""
    return held is not None and held.origin == "uploaded" and held.not_after > now


def _is_for(order: OrderRow, wish: Wish | None) -> bool:
    return wish is not None and wish.tenant == order.tenant_id and wish.names == tuple(order.names)


def _is_good(held: CertificateRow, wish: Wish, now: int) -> bool:
    return held.not_after > now and all(covers(held.names, name) for name in wish.names)


def _note_wish(row: CertificateRow, renew_at: int, asked_at: int) -> None:
    same = (CertificateRow.host == row.host) & (CertificateRow.fingerprint == row.fingerprint)
    if CertificateRow.update(renew_at=renew_at, asked_at=asked_at).where(same).execute() and renew_at != row.renew_at:
        idle = (OrderRow.host == row.host) & (OrderRow.order_url.is_null()) & (OrderRow.failures == 0)
        OrderRow.update(due_at=renew_at).where(idle).execute()
