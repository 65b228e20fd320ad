"""One order after the other, a step at a time: what has been done is written down, so that any process may go on with it."""

import logging
import threading
from dataclasses import dataclass, field

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ValidationFailed

from . import orders
from .checking import check_pair, covers
from .client import AcmeClient, Order, Question, Refused, Registration, Unreachable, new_private_key
from .hook import HookFailed, run_hook
from .models import AccountRow, ChallengeRow, OrderRow
from .records import Problem
from .schedule import HOUR, earliest_try, renewal_time
from .service import Certificates, Issued

log = logging.getLogger(__name__)
LONGEST_ORDER = HOUR
SOON, LATER = 2_000, 30_000


@dataclass(frozen=True)
class Authority:
    """Where certificates are ordered, and how names are proven: by `dns_hook` if there is one, else by HTTP."""

    directory: str
    registration: Registration = field(default_factory=Registration)
    ca_file: str = ""
    dns_hook: tuple[str, ...] = ()
    hook_seconds: float = 120


class Ordering:
    """Orders of one authority."""

    def __init__(self, authority: Authority, certificates: Certificates, stopping: threading.Event | None = None) -> None:
        """Once `stopping` is set, this process is to end: an order is left between two exchanges (Stopped)."""
        self._authority = authority
        self._stopping = stopping or threading.Event()
        self._certificates = certificates
        self._client: AcmeClient | None = None

    def advance(self, row: OrderRow) -> None:
        """Go one step further with an order of this process's; it is given back with the time of the next step."""
        try:
            if row.order_url is None:
                self._begin(row)
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
                orders.rest(row, clock.now_ms() + max(LATER, min(error.retry_after, HOUR)))

    def ask_renewal_time(self, chain: str) -> int | None:
        """When the authority wishes a certificate to be renewed; None when it has no wish, or is not to be reached."""
        try:
            return self._connected().renewal_time(chain)
        except (Refused, Unreachable):
            self._client = None
            return None

    # -- the steps

    def _begin(self, row: OrderRow) -> None:
        tries = orders.recent_tries(row)
        now = clock.now_ms()
        if (earliest := earliest_try(tries)) > now:
            orders.rest(row, earliest)
            return
        # Written before the authority is asked: a process that dies over it again and again must not ask for ever.
        orders.change(row, tries=[*tries, now])
        client = self._connected()
        key = new_private_key()
        url = client.new_order(tuple(row.names))
        sealed = self._certificates.seal(key, row.host)
        orders.change(row, order_url=url, private_key=sealed, answered={}, began_at=clock.now_ms())
        orders.rest(row, clock.now_ms())

    def _continue(self, row: OrderRow, url: str) -> None:
        client = self._connected()
        order = client.get_order(url)
        if order.status == "valid" and order.certificate is not None:
            self._take(row, client.download(order.certificate))
            return
        if order.status == "invalid" or _age(row) > LONGEST_ORDER:
            raise self._reason(client, order)
        if order.status == "ready":
            client.finalize(order, tuple(row.names), self._certificates.unseal(row.private_key, row.host))
        elif order.status == "pending":
            for authorization in order.authorizations:
                self._answer(row, client, authorization)
        orders.rest(row, clock.now_ms() + max(SOON, min(order.pause, HOUR)))

    def _answer(self, row: OrderRow, client: AcmeClient, authorization: str) -> None:
        question = client.get_question(authorization, "dns-01" if self._authority.dns_hook else "http-01")
        if question.status == "valid":
            return
        if question.status != "pending":
            raise question.problem or Refused(question.status, "the authority has given up on a name without a reason")
        if (row.answered.get(question.url) or {}).get("told"):
            return
        self._publish(row, question)
        client.answer(question)
        orders.change(row, answered=row.answered | {question.url: {"record": question.record, "told": True}})

    def _publish(self, row: OrderRow, question: Question) -> None:
        """Put there what the authority will look for; noted first, so that it is removed whatever happens."""
        name, value = question.record

        def note() -> None:
            orders.change(row, answered=row.answered | {question.url: {"record": question.record, "told": False}})
            if not self._authority.dns_hook:
                ChallengeRow.delete().where(ChallengeRow.token == question.token).execute()
                ChallengeRow.insert(token=question.token, host=name, order_host=row.host, answer=value).execute()

        db.write(note)
        if self._authority.dns_hook:
            run_hook(self._authority.dns_hook, "add", question.record, self._authority.hook_seconds, self._stopping)

    def _take(self, row: OrderRow, chain: str) -> None:
        """The certificate is there: judge it, store it, and plan the next."""
        key = self._certificates.unseal(row.private_key, row.host)
        try:
            pair, facts = check_pair(row.names[0], chain, key.decode("ascii"))
        except ValidationFailed as error:
            raise Refused("bad_certificate", f"the authority sent a certificate that is not used: {error.message}") from error
        if missing := [name for name in row.names if not covers(facts.names, name)]:
            raise Refused("bad_certificate", f"the authority sent a certificate without {missing[0]}")
        self.withdraw(row)
        renew_at = renewal_time(row.host, facts.not_before, facts.not_after)

        def store() -> None:
            orders.end_well(row, renew_at)
            self._certificates.store(Issued(row.host, row.tenant_id, "acme", pair, facts, renew_at))

        db.write(store)

    def _fail(self, row: OrderRow, problem: Problem, retry_after: int = 0) -> None:
        self.withdraw(row)
        orders.end_badly(row, problem, retry_after)

    def withdraw(self, row: OrderRow) -> None:
        """Remove the DNS records of an order that ends or that nobody waits for; one that stays is of no use to anybody, so
        failing is no reason to stop."""
        if self._authority.dns_hook:
            for answered in row.answered.values():
                name, value = answered["record"]
                try:
                    run_hook(self._authority.dns_hook, "remove", (name, value), self._authority.hook_seconds, self._stopping)
                except HookFailed:
                    log.exception("the DNS record %s of an ended order could not be removed", name)

    def _reason(self, client: AcmeClient, order: Order) -> Refused:
        """Why the authority has given up: the order may say so, or one of its authorizations."""
        if order.problem is not None:
            return order.problem
        kind = "dns-01" if self._authority.dns_hook else "http-01"
        questions = (client.get_question(url, kind) for url in order.authorizations)
        found = next((question.problem for question in questions if question.problem is not None), None)
        return found or Refused("timed_out", "the authority has not come to an end within an hour, and gave no reason")

    # -- the account

    def _connected(self) -> AcmeClient:
        """The client with an account; the key is stored before it is registered, so that no account is lost."""
        if self._client is None:
            row = db.write(self._account)
            key = self._certificates.unseal(row.private_key, self._authority.directory)
            client = AcmeClient(self._authority.directory, key, row.uri, self._authority.ca_file, self._stopping)
            if row.uri is None:
                uri = client.register(self._authority.registration)
                mine = AccountRow.directory == self._authority.directory
                db.write(lambda: AccountRow.update(uri=uri).where(mine).execute())
            self._client = client
        return self._client

    def _account(self) -> AccountRow:
        directory = self._authority.directory
        if AccountRow.get_or_none(AccountRow.directory == directory) is None:
            sealed = self._certificates.seal(new_private_key(), directory)
            AccountRow.insert(directory=directory, private_key=sealed, created_at=clock.now_ms()).execute()
        row: AccountRow = AccountRow.get(AccountRow.directory == directory)
        return row


def _age(row: OrderRow) -> int:
    return clock.now_ms() - (row.began_at or clock.now_ms())
