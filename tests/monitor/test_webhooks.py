"""Outbound webhooks: signed, delivered at least once, retried for three days; dead receivers do not delay others."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from appliance.connectors.egress import Egress
from appliance.connectors.testing import Answer, LoopbackServer, Received
from appliance.core import clock, logs
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.database.changes import read_state
from appliance.core.errors import AddressNotAllowed, Conflict, NotFound, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scheduling import Scheduler
from appliance.core.scope import TenantScope
from appliance.monitor import audit, webhooks
from appliance.monitor.audit import AuditFilter
from appliance.monitor.deliveries import FIRST_DELAY_MS, LEASE_MS, MAX_DELAY_MS, Deliverer, claim, delay_ms
from appliance.monitor.logs import LineFilter, list_lines
from appliance.monitor.webhooks import WebhookChange, Webhooks, WebhookSpec
from tests.tenants.fencing import KINDS, fenced

SEALER = Sealer(b"k" * 32)
LOOPBACK = Egress.of(["127.0.0.0/8"])
DAY = 86_400_000
FAILED = "execution.failed"


class Clock:
    """The wall clock, moved by `offset` milliseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset = 0
        true_now = clock.now_ms
        monkeypatch.setattr(clock, "now_ms", lambda: true_now() + self.offset)


@dataclass
class WebhookWorld:
    """The webhook service, a deliverer whose loop does not run, and a receiver."""

    service: Webhooks
    deliverer: Deliverer
    server: LoopbackServer

    def subscribe(self, scope: TenantScope, path: str = "/hook", events: tuple[str, ...] = (FAILED,)) -> tuple[str, str]:
        """A webhook's id and secret."""
        row, secret = self.service.create_webhook(scope, WebhookSpec(self.server.url + path, events))
        return row.id, secret

    def send_due(self) -> int:
        """Send what is due, wait for the outcome, and return the number of messages."""
        deliveries = self.deliverer.begin_due()
        wait(deliveries, 30)
        return len(deliveries)

    def delivery(self, scope: TenantScope, webhook_id: str) -> Any:
        """The newest message to a webhook."""
        return self.service.list_deliveries(scope, webhook_id, None, PageRequest()).items[0]


@pytest.fixture
def world() -> Iterator[WebhookWorld]:
    server = LoopbackServer()
    server.answer("/hook", 204, b"")
    deliverer = Deliverer(LOOPBACK, SEALER, frozenset)
    yield WebhookWorld(Webhooks(SEALER, LOOPBACK), deliverer, server)
    deliverer.stop()
    server.close()


def emit(scope: TenantScope, event: str = FAILED, **data: Any) -> None:
    db.write(partial(webhooks.emit, scope, event, lambda: data))


def verify(secret: str, request: Received) -> Any:
    """The message of a request, verified with the Standard Webhooks library."""
    return Webhook(secret).verify(request.body, dict(request.headers))


def test_a_message_is_signed_and_contains_the_event(world: WebhookWorld, acme: TenantScope) -> None:
    webhook_id, secret = world.subscribe(acme)
    emit(acme, execution_id="exe_1", note="ä \u2028 😀")
    assert world.send_due() == 1
    (request,) = world.server.received
    message = verify(secret, request)
    assert (message["type"], message["data"]) == (FAILED, {"tenant_id": "acme", "execution_id": "exe_1", "note": "ä \u2028 😀"})
    assert clock.parse_rfc3339(message["timestamp"]) <= clock.now_ms()
    delivery = world.delivery(acme, webhook_id)
    assert (delivery.status, delivery.tries, delivery.id) == ("succeeded", 1, request.headers["webhook-id"])
    assert delivery.attempts[0]["status"] == 204
    assert world.send_due() == 0
    with pytest.raises(WebhookVerificationError):
        verify(webhooks.make_secret(), request)


def test_only_subscribers_of_the_event_and_tenant_get_it(world: WebhookWorld, acme: TenantScope, other: TenantScope) -> None:
    world.server.answer("/other", 204, b"")
    world.subscribe(acme)
    world.subscribe(acme, "/other", ("execution.succeeded",))
    world.subscribe(other, "/other")
    emit(acme)
    assert world.send_due() == 1
    assert [request.path for request in world.server.received] == ["/hook"]


def test_a_rolled_back_event_is_not_sent(world: WebhookWorld, acme: TenantScope) -> None:
    world.subscribe(acme)

    def fail() -> None:
        webhooks.emit(acme, FAILED, dict)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        db.write(fail)
    assert world.send_due() == 0


def test_the_loop_sends_committed_events(world: WebhookWorld, acme: TenantScope) -> None:
    world.subscribe(acme)
    arrived = world.server.expect("/hook")
    world.deliverer.start(Scheduler(read_state))
    emit(acme)
    assert arrived.wait(20)


def test_both_secrets_sign_until_the_old_one_expires(
    world: WebhookWorld, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_clock = Clock(monkeypatch)
    webhook_id, old = world.subscribe(acme)
    _, new = world.service.rotate_secret(acme, webhook_id, 50_000)
    emit(acme)
    world.send_due()
    assert verify(old, world.server.received[0]) == verify(new, world.server.received[0])
    wall_clock.offset = 50_001
    emit(acme)
    world.send_due()
    signature = world.server.received[1].headers["webhook-signature"]
    assert len(signature.split()) == 1
    _, newest = world.service.rotate_secret(acme, webhook_id, 0)
    wall_clock.offset = 0
    emit(acme)
    world.send_due()
    assert verify(newest, world.server.received[2])
    with pytest.raises(WebhookVerificationError):
        verify(new, world.server.received[2])


def test_a_dead_receiver_is_retried_for_three_days_and_then_disabled(
    world: WebhookWorld, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_clock = Clock(monkeypatch)
    world.server.answer("/hook", 500, b"broken")
    webhook_id, _ = world.subscribe(acme)
    emit(acme, number=1)
    started_at, moments = clock.now_ms(), []
    while world.delivery(acme, webhook_id).status == "pending":
        next_try_at = world.delivery(acme, webhook_id).next_try_at
        wall_clock.offset += max(0, next_try_at - clock.now_ms())
        moments.append(clock.now_ms() - started_at)
        assert world.send_due() == 1
    assert 20 < len(moments) < 60
    assert abs(moments[-1] - 3 * DAY) < 60_000
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert pauses[0] <= FIRST_DELAY_MS + 5_000
    assert all(pause <= MAX_DELAY_MS + 5_000 for pause in pauses)
    assert len({request.headers["webhook-id"] for request in world.server.received}) == 1
    row = world.service.get_webhook(acme, webhook_id)
    assert (row.state, row.failing_since is not None) == ("disabled", True)
    assert row.disabled_reason is not None
    assert "status 500" in row.disabled_reason
    assert audit.list_entries(acme, AuditFilter(action="webhook.disable"), PageRequest()).items[0].subject == webhook_id
    (line,) = list_lines(acme, LineFilter(source="webhook"), PageRequest()).items
    assert "enable the webhook again" in line.message
    emit(acme, number=2)
    assert world.send_due() == 0, "a disabled webhook is told nothing"
    delivery = world.delivery(acme, webhook_id)
    with pytest.raises(Conflict, match="enable"):
        world.service.redeliver(acme, webhook_id, delivery.id)
    world.server.answer("/hook", 204, b"")
    world.service.change_webhook(acme, webhook_id, WebhookChange(enabled=True))
    world.service.redeliver(acme, webhook_id, delivery.id)
    assert world.send_due() == 1
    assert world.delivery(acme, webhook_id).status == "succeeded"
    assert world.service.get_webhook(acme, webhook_id).failing_since is None


def test_retry_delays_grow_and_have_jitter() -> None:
    assert [delay_ms(tries, 0.0) for tries in (1, 2, 3)] == [5_000, 15_000, 45_000]
    assert delay_ms(1000, 0.0) == MAX_DELAY_MS
    assert delay_ms(2, 1.0) == 7_500


def test_a_retry_after_header_is_honoured(world: WebhookWorld, acme: TenantScope) -> None:
    world.server.answer("/hook", 429, b"", Retry_After="3600")
    webhook_id, _ = world.subscribe(acme)
    emit(acme)
    world.send_due()
    assert world.delivery(acme, webhook_id).next_try_at >= clock.now_ms() + 3_590_000


def test_a_410_response_disables_the_webhook(world: WebhookWorld, acme: TenantScope) -> None:
    world.server.answer("/hook", 410, b"")
    webhook_id, _ = world.subscribe(acme)
    emit(acme)
    world.send_due()
    assert world.service.get_webhook(acme, webhook_id).disabled_reason == "its URL responded with 410 Gone"
    assert world.delivery(acme, webhook_id).status == "failed"


def test_a_crash_between_sending_and_recording_sends_again_under_the_same_id(
    world: WebhookWorld, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_clock = Clock(monkeypatch)
    webhook_id, secret = world.subscribe(acme)
    emit(acme, number=1)
    (claimed,) = db.write(partial(claim, acme, webhook_id, 5))
    assert world.deliverer.send(claimed).status == 204  # and the process dies here
    assert world.send_due() == 0, "nobody else sends it meanwhile"
    wall_clock.offset = LEASE_MS + 1
    assert world.send_due() == 1
    first, second = world.server.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert verify(secret, first) == json.loads(second.body)
    assert world.delivery(acme, webhook_id).status == "succeeded"


def test_dead_receivers_do_not_delay_others(world: WebhookWorld, acme: TenantScope, other: TenantScope) -> None:
    release = threading.Event()

    def block(_request: Received) -> Answer:
        release.wait(30)
        return Answer(500, {}, b"")

    world.server.answer("/dead", 500, b"")
    for _ in range(40):
        world.subscribe(acme, "/dead")
    emit(acme)
    for _ in range(10):
        world.send_due()  # each has failed once by now
    world.server.answers["/dead"] = block
    db.write(lambda: db.execute("UPDATE webhook_delivery SET next_try_at = 0 WHERE status = 'pending'"))
    blocked = world.deliverer.begin_due()
    try:
        assert len(blocked) == 16
        webhook_id, _ = world.subscribe(other)
        emit(other)
        deliveries = world.deliverer.begin_due()
        assert len(deliveries) == 1
        assert not wait(deliveries, 20).not_done
        assert world.delivery(other, webhook_id).status == "succeeded"
        assert not any(each.done() for each in blocked)
    finally:
        release.set()
        wait(blocked, 30)


def test_one_receiver_gets_a_limited_number_of_concurrent_messages(world: WebhookWorld, acme: TenantScope) -> None:
    release = threading.Event()

    def block(_request: Received) -> Answer:
        release.wait(30)
        return Answer(200, {}, b"")

    world.server.answers["/hook"] = block
    world.subscribe(acme)
    for number in range(10):
        emit(acme, number=number)
    blocked = world.deliverer.begin_due()
    try:
        assert (len(blocked), world.deliverer.begin_due()) == (4, [])
    finally:
        release.set()
        wait(blocked, 30)
    assert [world.send_due() for _ in range(3)] == [4, 2, 0]
    assert len({request.headers["webhook-id"] for request in world.server.received}) == 10


def test_a_redirect_is_a_failure_and_is_not_followed(world: WebhookWorld, acme: TenantScope) -> None:
    world.server.answer("/hook", 307, b"", Location="/elsewhere")
    webhook_id, _ = world.subscribe(acme)
    emit(acme)
    world.send_due()
    assert [request.path for request in world.server.received] == ["/hook"]
    assert world.delivery(acme, webhook_id).attempts[0]["status"] == 307


def test_a_long_response_is_accepted(world: WebhookWorld, acme: TenantScope) -> None:
    world.server.answer("/hook", 200, b"x" * (1 << 20))
    webhook_id, _ = world.subscribe(acme)
    emit(acme)
    world.send_due()
    assert world.delivery(acme, webhook_id).status == "succeeded"


def test_an_internal_address_is_refused_on_creation_and_on_delivery(world: WebhookWorld, acme: TenantScope) -> None:
    refusing_egress = Egress(resolver=lambda _host, _port: ["127.0.0.1"])
    verbs, deliverer = Webhooks(SEALER, refusing_egress), Deliverer(refusing_egress, SEALER, frozenset)
    with pytest.raises(AddressNotAllowed):
        verbs.create_webhook(acme, WebhookSpec(world.server.url + "/hook", [FAILED]))
    row, _ = verbs.create_webhook(acme, WebhookSpec(f"http://good.example:{world.server.port}/hook", [FAILED]))
    with pytest.raises(AddressNotAllowed):
        verbs.change_webhook(acme, row.id, WebhookChange(url="http://[::ffff:169.254.169.254]/"))
    emit(acme)
    wait(deliverer.begin_due(), 20)
    deliverer.stop()
    assert "egress.allow" in world.delivery(acme, row.id).attempts[0]["error"]
    assert world.server.received == []


@pytest.mark.parametrize(
    "spec",
    [
        WebhookSpec("ftp://a.example/", [FAILED]), WebhookSpec("https://u:p@a.example/", [FAILED]),
        WebhookSpec("https://", [FAILED]),
        WebhookSpec("https://a.example:99999/", [FAILED]), WebhookSpec("https://a b.example/", [FAILED]),
        WebhookSpec("http://①.example/", [FAILED]),
        WebhookSpec("https://a.example/", []), WebhookSpec("https://a.example/", [FAILED, "document.shredded"]),
    ],
)  # fmt: skip
def test_an_invalid_webhook_is_refused(world: WebhookWorld, acme: TenantScope, spec: WebhookSpec) -> None:
    with pytest.raises(ValidationFailed):
        world.service.create_webhook(acme, spec)


def test_secrets_are_sealed_and_redacted(world: WebhookWorld, acme: TenantScope) -> None:
    logs.remember_secret("tops3cret-canary")
    webhook_id, secret = world.subscribe(acme)
    emit(acme, error={"message": "refused tops3cret-canary"})
    assert "tops3cret-canary" not in world.delivery(acme, webhook_id).payload
    stored = db.rows("SELECT url, events, description, sealed FROM webhook")
    assert secret.removeprefix("whsec_") not in repr([[str(bytes(v) if not isinstance(v, str) else v) for v in r] for r in stored])


def test_webhooks_are_isolated_by_tenant(world: WebhookWorld, acme: TenantScope, other: TenantScope) -> None:
    webhook_id, _ = world.subscribe(acme)
    emit(acme)
    delivery = world.delivery(acme, webhook_id)
    for verb in (
        partial(world.service.get_webhook, other, webhook_id), partial(world.service.delete_webhook, other, webhook_id),
        partial(world.service.rotate_secret, other, webhook_id, 0), partial(world.service.send_test, other, webhook_id),
        partial(world.service.redeliver, other, webhook_id, delivery.id),
        partial(world.service.change_webhook, other, webhook_id, WebhookChange(enabled=False)),
    ):  # fmt: skip
        with pytest.raises(NotFound):
            verb()


def test_deleted_webhooks_get_nothing_and_old_deliveries_are_purged(
    world: WebhookWorld, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook_id, _ = world.subscribe(acme)
    emit(acme)
    world.service.delete_webhook(acme, webhook_id)
    assert world.send_due() == 0
    world.subscribe(acme)
    emit(acme)
    assert webhooks.purge(clock.now_ms() + 1) == 0, "what may still be tried stays"
    Clock(monkeypatch).offset = 7 * DAY
    assert webhooks.purge(clock.now_ms() - DAY) == 1


@pytest.mark.parametrize("how", KINDS)
def test_nothing_is_sent_for_a_tenant_that_is_reset_or_deleted(
    world: WebhookWorld, acme: TenantScope, other: TenantScope, how: str
) -> None:
    webhook, _ = world.subscribe(acme)
    world.subscribe(other)
    for scope in (acme, other):
        emit(scope)
    with fenced(acme, how):
        assert world.send_due() == 1
        assert db.write(lambda: claim(acme, webhook, 10)) == [], "nor by a process that looked before"
    assert world.delivery(acme, webhook).tries == 0
    assert world.send_due() == 1
