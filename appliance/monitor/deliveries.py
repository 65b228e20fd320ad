"""Delivers messages from the webhook outbox: signed, at least once, with retries for three days."""

import base64
import hmac
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from appliance.connectors.contract import ConnectorError, HttpAnswer, HttpRequest
from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.network import resolving_for
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.database.changes import earliest
from appliance.core.errors import ApplianceError
from appliance.core.events import hub
from appliance.core.leases import LeaseTable
from appliance.core.leases.open_tenants import FENCED
from appliance.core.pools import WEBHOOK, open_pool
from appliance.core.scheduling import PeriodicJob, Rest, Scheduler
from appliance.core.scope import TenantScope

from . import webhooks
from .logs import Line, write_lines
from .models import DeliveryRow, WebhookRow
from .storable import storable_text
from .webhooks import RETRY_PERIOD_MS, OutboxFilled, seal_context

log = logging.getLogger(__name__)
# A private generator: code that seeds the shared one for reproducibility is not affected by deliveries.
_jitter = random.Random()  # noqa: S311 jitter, not cryptography

"""The number of messages one process sends concurrently."""
MAX_SUSPECT = 16
"""How many of these may go to webhooks whose last attempt failed, so that half remain for the others."""
MAX_PER_WEBHOOK = 4
SEND_SECONDS = 15.0
LEASE_MS = 60_000
"""An attempt not recorded within this time was lost with its process, and is repeated."""
FIRST_DELAY_MS = 5_000
MAX_DELAY_MS = 4 * 3_600_000
_POLL_SECONDS = 1.0
_MAX_ATTEMPTS_STORED = 20
_ANSWER_BYTES = 64 << 10
_EXCERPT_BYTES = 500
_HTTP_GONE = 410

LEASES = LeaseTable(DeliveryRow, ("tenant_id", "id"), lease="next_try_at", stops_with_tenant=True)
Key = tuple[str, str]


@dataclass(frozen=True)
class Claimed:
    """A message that this process is sending; its lease ends at `lease` (epoch ms)."""

    scope: TenantScope
    webhook_id: str
    delivery_id: str
    url: str
    payload: str
    sealed: tuple[bytes, ...]
    tries: int
    lease: int


@dataclass(frozen=True)
class Attempt:
    """The result of an attempt; `status` is the HTTP status if there was a response, `retry_after` in seconds."""

    at: int
    duration_ms: int
    status: int | None = None
    error: str | None = None
    answer: str | None = None
    retry_after: int | None = None


def _next_due() -> int | None:
    """When the first message of an active webhook is due (epoch ms), None without one."""
    return earliest(
        "SELECT MIN(d.next_try_at) FROM webhook_delivery d JOIN webhook w ON w.tenant_id = d.tenant_id AND w.id = d.webhook_id "
        "WHERE d.next_try_at IS NOT NULL AND w.state = 'active'"
    )


def sign(secrets: Sequence[str], delivery_id: str, timestamp: int, payload: str) -> str:
    """The header `webhook-signature` of Standard Webhooks: one `v1` signature per secret."""
    content = f"{delivery_id}.{timestamp}.{payload}".encode()
    keys = [base64.b64decode(secret.removeprefix("whsec_")) for secret in secrets]
    return " ".join("v1," + base64.b64encode(hmac.digest(key, content, "sha256")).decode() for key in keys)


def delay_ms(tries: int, chance: float) -> int:
    """The delay after the `tries`-th attempt: three times longer each time, up to four hours, reduced by up to half at random."""
    longest = min(FIRST_DELAY_MS * 3 ** min(tries - 1, 20), MAX_DELAY_MS)
    return int(longest * (1 - chance / 2))


class Deliverer:
    """Delivers the outbox's messages between `start` and `stop`.

    `find_switched_off` returns the ids of the tenants that are switched off; nothing of theirs is sent.
    """

    def __init__(self, egress: Egress, sealer: Sealer, find_switched_off: Callable[[], frozenset[str]]) -> None:
        self._egress, self._sealer = egress, sealer
        self._find_switched_off = find_switched_off
        self._threads = open_pool(WEBHOOK)
        self._lock = threading.Lock()
        self._in_flight: Counter[Key] = Counter()
        self._suspects = 0
        self._stopped = False
        self._job = PeriodicJob("webhooks", _POLL_SECONDS, self.begin_due, rest=Rest(next_due=_next_due))
        self._withdraw: Callable[[], None] | None = None

    def start(self, scheduler: Scheduler) -> None:
        """Start delivering: messages of this process immediately, those of others within a second."""
        self._withdraw = hub.subscribe(OutboxFilled, self._hasten)
        self._job.hasten()
        self._job.start(scheduler)

    def stop(self) -> None:
        """Start no more attempts; wait for those in progress, at most `SEND_SECONDS`."""
        self._stopped = True
        if self._withdraw is not None:
            self._withdraw()
            self._withdraw = None
        self._job.stop()
        self._threads.shutdown(wait=True)

    def _hasten(self, _: OutboxFilled) -> None:
        self._job.hasten()

    def begin_due(self) -> list[Future[None]]:
        """Start due deliveries as far as there are free places; returns the started ones."""
        due = db.rows(
            "SELECT w.tenant_id, w.id, w.failed_in_row FROM webhook w WHERE w.state = 'active' AND EXISTS (SELECT 1 FROM "  # noqa: S608
            "webhook_delivery d WHERE d.tenant_id = w.tenant_id AND d.webhook_id = w.id AND d.next_try_at <= ?) "
            f"AND w.tenant_id NOT IN ({FENCED})",
            (clock.now_ms(),),
        )
        if due:  # messages of a tenant that is switched off are sent once it is switched on again
            withheld = self._find_switched_off()
            due = [row for row in due if row[0] not in withheld]
        _jitter.shuffle(due)  # so that no webhook is always last when places are scarce
        started: list[Future[None]] = []
        for tenant_id, webhook_id, failed_in_row in due:
            key, suspect = (str(tenant_id), str(webhook_id)), failed_in_row > 0
            free = self._free_places(key, suspect=suspect)
            if free > 0 and not self._stopped:
                scope = TenantScope(key[0], "system")
                claimed = db.write(partial(claim, scope, key[1], free))
                started += [self._submit(each, suspect=suspect) for each in claimed]
        return started

    def _free_places(self, key: Key, *, suspect: bool) -> int:
        with self._lock:
            free = WEBHOOK.threads - self._in_flight.total()
            if suspect:
                return min(free, MAX_SUSPECT - self._suspects, 1 - self._in_flight[key])
            return min(free, MAX_PER_WEBHOOK - self._in_flight[key])

    def _submit(self, claimed: Claimed, *, suspect: bool) -> Future[None]:
        with self._lock:
            self._in_flight[claimed.scope.tenant_id, claimed.webhook_id] += 1
            self._suspects += suspect
        return self._threads.submit(self._deliver, claimed, suspect)

    def _deliver(self, claimed: Claimed, suspect: bool) -> None:
        try:
            attempt = self.send(claimed)
            db.write(partial(record_attempt, claimed, attempt))
        except Exception:
            log.exception("the result of a delivery was not recorded; it will be sent again")
        finally:
            with self._lock:
                key = (claimed.scope.tenant_id, claimed.webhook_id)
                self._in_flight[key] -= 1
                if not self._in_flight[key]:
                    del self._in_flight[key]
                self._suspects -= suspect
            self._job.hasten()

    def send(self, claimed: Claimed) -> Attempt:
        """Make one attempt; never raises, failures are part of the returned attempt."""
        at, began = clock.now_ms(), clock.monotonic()
        client = EgressClient(self._egress)
        try:
            with resolving_for(claimed.scope.tenant_id):
                answer = client.send(self._request(claimed, at // 1000), began + SEND_SECONDS)
        except ConnectorError as error:
            # A response body of excessive length does not matter; only the status counts.
            attempt = partial(Attempt, status=error.details.get("status"), error=storable_text(error.message, _EXCERPT_BYTES))
        except ApplianceError as error:
            attempt = partial(Attempt, error=storable_text(error.message, _EXCERPT_BYTES))
        else:
            attempt = partial(Attempt, **_answer_fields(answer))
        finally:
            client.close()
        return attempt(at=at, duration_ms=int((clock.monotonic() - began) * 1000))

    def _request(self, claimed: Claimed, timestamp: int) -> HttpRequest:
        context = seal_context(claimed.scope.tenant_id, claimed.webhook_id)
        secrets = [self._sealer.open(sealed, context).decode() for sealed in claimed.sealed]
        headers = (
            ("Content-Type", "application/json"), ("webhook-id", claimed.delivery_id), ("webhook-timestamp", str(timestamp)),
            ("webhook-signature", sign(secrets, claimed.delivery_id, timestamp, claimed.payload)),
        )  # fmt: skip
        content = claimed.payload.encode()
        return HttpRequest("POST", claimed.url, headers, content=content, follow_redirects=False, max_bytes=_ANSWER_BYTES)


def _answer_fields(answer: HttpAnswer) -> dict[str, Any]:
    """The parts of a response to store."""
    after = answer.headers.get("retry-after", "")
    retry_after = int(after) if answer.status in (429, 503) and after.isascii() and after.isdigit() and len(after) < 9 else None
    excerpt = storable_text(answer.content[:_EXCERPT_BYTES].decode("utf8", "replace"), _EXCERPT_BYTES)
    return {"status": answer.status, "answer": excerpt or None, "retry_after": retry_after}


def claim(scope: TenantScope, webhook_id: str, most: int) -> list[Claimed]:
    """Inside a write: lease due messages of one webhook, oldest first; no other process takes them before the lease ends."""
    row = scope.find(WebhookRow, id=webhook_id)
    if row is None or row.state != "active":
        return []
    now = clock.now_ms()
    sealed = [bytes(row.sealed)]
    if row.sealed_old is not None and row.old_until is not None and now < row.old_until:
        sealed.append(bytes(row.sealed_old))
    due = (DeliveryRow.webhook_id == webhook_id) & (DeliveryRow.next_try_at <= now)
    claimed = []
    for each in scope.select(DeliveryRow).where(due).order_by(DeliveryRow.next_try_at, DeliveryRow.id).limit(most):
        key, changes = (scope.tenant_id, each.id), {"tries": each.tries + 1}
        if LEASES.claim(key, each.next_try_at, until=now + LEASE_MS, changes=changes):
            claimed.append(
                Claimed(
                    scope=scope, webhook_id=webhook_id, delivery_id=each.id, url=row.url, payload=each.payload,
                    sealed=tuple(sealed), tries=each.tries + 1, lease=now + LEASE_MS,
                )
            )
    return claimed


def record_attempt(claimed: Claimed, attempt: Attempt) -> None:
    """Inside a write: record the result of an attempt, on the message and on the webhook."""
    scope, now = claimed.scope, clock.now_ms()
    row = scope.find(DeliveryRow, id=claimed.delivery_id)
    webhook = scope.find(WebhookRow, id=claimed.webhook_id)
    if row is None or webhook is None:
        return
    fields = {name: value for name, value in asdict(attempt).items() if value is not None}
    given_up = False
    changes: dict[str, Any] = {"attempts": [*row.attempts, fields][-_MAX_ATTEMPTS_STORED:]}
    is_done = attempt.status is not None and 200 <= attempt.status < 300
    if is_done:
        changes |= {"status": "succeeded", "next_try_at": None, "finished_at": now}
    elif LEASES.is_current((scope.tenant_id, row.id), claimed.lease):  # otherwise the lease was lost, or a redelivery was requested
        next_try_at = _next_try(row, claimed, attempt, now)
        given_up = next_try_at is None
        changes |= {"next_try_at": next_try_at} | ({"status": "failed", "finished_at": now} if given_up else {})
    scope.update(DeliveryRow, **changes).where(DeliveryRow.id == row.id).execute()
    if is_done:
        health = {"failed_in_row": 0, "failing_since": None, "last_success_at": now}
        scope.update(WebhookRow, **health).where(WebhookRow.id == webhook.id).execute()
    else:
        tried_since = row.give_up_at - RETRY_PERIOD_MS
        _record_failure(scope, webhook, attempt, nothing_arrives=given_up and (webhook.last_success_at or 0) < tried_since)


def _next_try(row: DeliveryRow, claimed: Claimed, attempt: Attempt, now: int) -> int | None:
    """The time of the next attempt; the last one is at the end of the three days."""
    if now >= row.give_up_at or attempt.status == _HTTP_GONE:
        return None
    delay = delay_ms(claimed.tries, _jitter.random())
    if attempt.retry_after is not None:
        delay = max(delay, min(attempt.retry_after * 1000, MAX_DELAY_MS))
    return int(min(now + delay, row.give_up_at))


def _record_failure(scope: TenantScope, webhook: WebhookRow, attempt: Attempt, *, nothing_arrives: bool) -> None:
    now = clock.now_ms()
    since = now if webhook.failing_since is None else webhook.failing_since
    changes = {"failed_in_row": webhook.failed_in_row + 1, "failing_since": since}
    scope.update(WebhookRow, **changes).where(WebhookRow.id == webhook.id).execute()
    if webhook.state != "active":
        return
    reason = ""
    if attempt.status == _HTTP_GONE:
        reason = "its URL responded with 410 Gone"
    elif nothing_arrives:
        last = attempt.error or f"status {attempt.status}"
        reason = f"no delivery has succeeded for 3 days; the last attempt: {last}"
    if reason:
        webhooks.disable(scope, webhook.id, reason)
        message = f"the webhook {webhook.id} is disabled: {reason}. Fix the receiver, then enable the webhook again."
        write_lines(scope, [Line(now, "error", "webhook", message, {"webhook_id": webhook.id, "url": webhook.url})])
