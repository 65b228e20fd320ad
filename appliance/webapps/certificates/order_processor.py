"""Advances ACME orders step by step; every step is stored, so any process can continue with the next one."""

import logging
import threading
from dataclasses import dataclass, field

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ValidationFailed

from . import orders
from .client import AcmeClient, Challenge, Order, Refused, Registration, Unreachable, new_private_key
from .hook import HookFailed, run_hook
from .models import AccountRow, ChallengeRow, OrderRow
from .records import Problem
from .schedule import HOUR, earliest_attempt_time, renewal_time
from .service import Certificates, Issued
from .validation import check_pair, covers

log = logging.getLogger(__name__)
LONGEST_ORDER = HOUR
SOON, LATER = 2_000, 30_000


@dataclass(frozen=True)
class Authority:
    """The authority that issues certificates, and how names are validated: by `dns_hook` (DNS-01) if set, else by HTTP-01."""

    directory: str
    registration: Registration = field(default_factory=Registration)
    ca_file: str = ""
    dns_hook: tuple[str, ...] = ()
    hook_seconds: float = 120


class OrderProcessor:
    """Processes the orders of one authority."""

    def __init__(self, authority: Authority, certificates: Certificates, stopping: threading.Event | None = None) -> None:
        """Once `stopping` is set, work on an order stops before the next request (Stopped)."""
        self._authority = authority
        self._stopping = stopping or threading.Event()
        self._certificates = certificates
        self._client: AcmeClient | None = None

    def advance(self, row: OrderRow) -> None:
        """Take the next step of an order claimed by this process, then release it with the time of the step after that."""
        try:
            if row.order_url is None:
                self._start(row)
            else:
                self._continue(row, row.order_url)
        except Refused as refused:
            self._fail(row, Problem(refused.type, refused.detail, clock.now_ms()), refused.retry_after)
        except HookFailed as error:
            self._fail(row, Problem("dns_hook_failed", str(error), clock.now_ms()))
        except Unreachable as error:
            self._client = None
            problem = Problem("unreachable", error.detail, clock.now_ms())
            if row.order_url is None or _age(row) > LONGEST_ORDER:
                self._fail(row, problem, error.retry_after)
            else:
                orders.release(row, clock.now_ms() + max(LATER, min(error.retry_after, HOUR)))

    def fetch_renewal_time(self, chain: str) -> int | None:
        """When the authority suggests renewing the certificate (epoch ms); None when it has no suggestion or cannot be reached."""
        try:
            return self._connect().renewal_time(chain)
        except (Refused, Unreachable):
            self._client = None
            return None

    # -- the steps

    def _start(self, row: OrderRow) -> None:
        attempts = orders.recent_attempts(row)
        now = clock.now_ms()
        if (earliest := earliest_attempt_time(attempts)) > now:
            orders.release(row, earliest)
            return
        # Stored before the request: a process that crashes here repeatedly must not exceed the limit of attempts.
        orders.update_order(row, tries=[*attempts, now])
        client = self._connect()
        key = new_private_key()
        url = client.new_order(tuple(row.names))
        sealed = self._certificates.seal(key, row.host)
        orders.update_order(row, order_url=url, private_key=sealed, answered={}, began_at=clock.now_ms())
        orders.release(row, clock.now_ms())

    def _continue(self, row: OrderRow, url: str) -> None:
        client = self._connect()
        order = client.get_order(url)
        if order.status == "valid" and order.certificate is not None:
            self._accept(row, client.download(order.certificate))
            return
        if order.status == "invalid" or _age(row) > LONGEST_ORDER:
            raise self._failure_reason(client, order)
        if order.status == "ready":
            client.finalize(order, tuple(row.names), self._certificates.unseal(row.private_key, row.host))
        elif order.status == "pending":
            for authorization in order.authorizations:
                self._answer_challenge(row, client, authorization)
        orders.release(row, clock.now_ms() + max(SOON, min(order.pause, HOUR)))

    def _answer_challenge(self, row: OrderRow, client: AcmeClient, authorization: str) -> None:
        challenge = client.get_challenge(authorization, "dns-01" if self._authority.dns_hook else "http-01")
        if challenge.status == "valid":
            return
        if challenge.status != "pending":
            raise challenge.problem or Refused(challenge.status, "the authority rejected a name without giving a reason")
        if (row.answered.get(challenge.url) or {}).get("told"):
            return
        self._publish(row, challenge)
        client.answer_challenge(challenge)
        orders.update_order(row, answered=row.answered | {challenge.url: {"record": challenge.record, "told": True}})

    def _publish(self, row: OrderRow, challenge: Challenge) -> None:
        """Publish what the authority will look up. It is stored first, so that it is removed whatever happens."""
        name, value = challenge.record

        def note() -> None:
            orders.update_order(row, answered=row.answered | {challenge.url: {"record": challenge.record, "told": False}})
            if not self._authority.dns_hook:
                ChallengeRow.delete().where(ChallengeRow.token == challenge.token).execute()
                ChallengeRow.insert(token=challenge.token, host=name, order_host=row.host, answer=value).execute()

        db.write(note)
        if self._authority.dns_hook:
            run_hook(self._authority.dns_hook, "add", challenge.record, self._authority.hook_seconds, self._stopping)

    def _accept(self, row: OrderRow, chain: str) -> None:
        """Validate the issued certificate, store it, and schedule its renewal."""
        key = self._certificates.unseal(row.private_key, row.host)
        try:
            pair, details = check_pair(row.names[0], chain, key.decode("ascii"))
        except ValidationFailed as error:
            raise Refused("bad_certificate", f"the authority issued an unusable certificate: {error.message}") from error
        if missing := [name for name in row.names if not covers(details.names, name)]:
            raise Refused("bad_certificate", f"the authority issued a certificate that does not cover {missing[0]}")
        self.withdraw(row)
        renew_at = renewal_time(row.host, details.not_before, details.not_after)

        def store() -> None:
            orders.complete(row, renew_at)
            self._certificates.store(Issued(row.host, row.tenant_id, "acme", pair, details, renew_at))

        db.write(store)

    def _fail(self, row: OrderRow, problem: Problem, retry_after: int = 0) -> None:
        self.withdraw(row)
        orders.fail(row, problem, retry_after)

    def withdraw(self, row: OrderRow) -> None:
        """Remove the DNS records of an order that has ended. A failure is logged only: a leftover record does no harm."""
        if self._authority.dns_hook:
            for challenge in row.answered.values():
                name, value = challenge["record"]
                try:
                    run_hook(self._authority.dns_hook, "remove", (name, value), self._authority.hook_seconds, self._stopping)
                except HookFailed:
                    log.exception("the DNS record %s of a finished order could not be removed", name)

    def _failure_reason(self, client: AcmeClient, order: Order) -> Refused:
        """Why the authority rejected the order, as stated by the order or by one of its authorizations."""
        if order.problem is not None:
            return order.problem
        kind = "dns-01" if self._authority.dns_hook else "http-01"
        challenges = (client.get_challenge(url, kind) for url in order.authorizations)
        problem = next((challenge.problem for challenge in challenges if challenge.problem is not None), None)
        return problem or Refused("timed_out", "the authority did not finish the order within an hour and gave no reason")

    # -- the account

    def _connect(self) -> AcmeClient:
        """The client of our account. The key is stored before it is registered, so that the account is not lost."""
        if self._client is None:
            row = db.write(self._get_or_create_account)
            key = self._certificates.unseal(row.private_key, self._authority.directory)
            client = AcmeClient(self._authority.directory, key, row.uri, self._authority.ca_file, self._stopping)
            if row.uri is None:
                uri = client.register(self._authority.registration)
                mine = AccountRow.directory == self._authority.directory
                db.write(lambda: AccountRow.update(uri=uri).where(mine).execute())
            self._client = client
        return self._client

    def _get_or_create_account(self) -> AccountRow:
        directory = self._authority.directory
        if AccountRow.get_or_none(AccountRow.directory == directory) is None:
            sealed = self._certificates.seal(new_private_key(), directory)
            AccountRow.insert(directory=directory, private_key=sealed, created_at=clock.now_ms()).execute()
        row: AccountRow = AccountRow.get(AccountRow.directory == directory)
        return row


def _age(row: OrderRow) -> int:
    return clock.now_ms() - (row.began_at or clock.now_ms())
