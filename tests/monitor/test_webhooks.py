"""Outbound webhooks: signed, at least once, for three days, and nobody waits for somebody else's dead receiver."""

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
from appliance.core.errors import AddressNotAllowed, Conflict, NotFound, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit, webhooks
from appliance.monitor.audit import AuditFilter
from appliance.monitor.deliveries import FIRST_DELAY_MS, LEASE_MS, MAX_DELAY_MS, Deliverer, claim, delay_ms
from appliance.monitor.logs import LineFilter, list_lines
from appliance.monitor.webhooks import WebhookChange, Webhooks, WebhookSpec

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
class Post:
    """The verbs, a deliverer whose loop does not run, and a receiver."""

    verbs: Webhooks
    deliverer: Deliverer
    server: LoopbackServer

    def subscribe(self, scope: TenantScope, path: str = "/hook", events: tuple[str, ...] = (FAILED,)) -> tuple[str, str]:
        """A webhook's id and secret."""
        row, secret = self.verbs.create_webhook(scope, WebhookSpec(self.server.url + path, events))
        return row.id, secret

    def send_due(self) -> int:
        """Send what is due and wait for the outcome; answers how many."""
        begun = self.deliverer.begin_due()
        wait(begun, 30)
        return len(begun)

    def delivery(self, scope: TenantScope, webhook_id: str) -> Any:
        """The newest message to a webhook."""
        return self.verbs.list_deliveries(scope, webhook_id, None, PageRequest()).items[0]


@pytest.fixture
def post() -> Iterator[Post]:
    server = LoopbackServer()
    server.answer("/hook", 204, b"")
    deliverer = Deliverer(LOOPBACK, SEALER)
    yield Post(Webhooks(SEALER, LOOPBACK), deliverer, server)
    deliverer.stop()
    server.close()


def tell(scope: TenantScope, event: str = FAILED, **data: Any) -> None:
    db.write(partial(webhooks.emit, scope, event, lambda: data))


def verified(secret: str, request: Received) -> Any:
    """What the senders' own library makes of a request."""
    return Webhook(secret).verify(request.body, dict(request.headers))


def test_a_message_is_signed_and_tells_what_happened(post: Post, acme: TenantScope) -> None:
    webhook_id, secret = post.subscribe(acme)
    tell(acme, execution_id="exe_1", note="ä \u2028 😀")
    assert post.send_due() == 1
    (request,) = post.server.received
    message = verified(secret, request)
    assert (message["type"], message["data"]) == (FAILED, {"tenant_id": "acme", "execution_id": "exe_1", "note": "ä \u2028 😀"})
    assert clock.parse_rfc3339(message["timestamp"]) <= clock.now_ms()
    delivery = post.delivery(acme, webhook_id)
    assert (delivery.status, delivery.tries, delivery.id) == ("succeeded", 1, request.headers["webhook-id"])
    assert delivery.attempts[0]["status"] == 204
    assert post.send_due() == 0
    with pytest.raises(WebhookVerificationError):
        verified(webhooks.make_secret(), request)


def test_only_who_asked_is_told_and_no_other_tenant(post: Post, acme: TenantScope, other: TenantScope) -> None:
    post.server.answer("/other", 204, b"")
    post.subscribe(acme)
    post.subscribe(acme, "/other", ("execution.succeeded",))
    post.subscribe(other, "/other")
    tell(acme)
    assert post.send_due() == 1
    assert [request.path for request in post.server.received] == ["/hook"]


def test_what_is_rolled_back_is_told_to_nobody(post: Post, acme: TenantScope) -> None:
    post.subscribe(acme)

    def fail() -> None:
        webhooks.emit(acme, FAILED, dict)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        db.write(fail)
    assert post.send_due() == 0


def test_the_loop_sends_what_a_commit_has_put_there(post: Post, acme: TenantScope) -> None:
    post.subscribe(acme)
    arrived = post.server.expect("/hook")
    post.deliverer.start()
    tell(acme)
    assert arrived.wait(20)


def test_both_secrets_sign_until_the_old_one_has_had_its_time(
    post: Post, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Clock(monkeypatch)
    webhook_id, old = post.subscribe(acme)
    _, new = post.verbs.rotate_secret(acme, webhook_id, 50_000)
    tell(acme)
    post.send_due()
    assert verified(old, post.server.received[0]) == verified(new, post.server.received[0])
    moved.offset = 50_001
    tell(acme)
    post.send_due()
    signature = post.server.received[1].headers["webhook-signature"]
    assert len(signature.split()) == 1
    _, newest = post.verbs.rotate_secret(acme, webhook_id, 0)
    moved.offset = 0
    tell(acme)
    post.send_due()
    assert verified(newest, post.server.received[2])
    with pytest.raises(WebhookVerificationError):
        verified(new, post.server.received[2])


def test_a_dead_receiver_is_tried_for_three_days_ever_more_rarely_and_then_disabled(
    post: Post, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Clock(monkeypatch)
    post.server.answer("/hook", 500, b"broken")
    webhook_id, _ = post.subscribe(acme)
    tell(acme, number=1)
    began, moments = clock.now_ms(), []
    while post.delivery(acme, webhook_id).status == "pending":
        next_try_at = post.delivery(acme, webhook_id).next_try_at
        moved.offset += max(0, next_try_at - clock.now_ms())
        moments.append(clock.now_ms() - began)
        assert post.send_due() == 1
    assert 20 < len(moments) < 60
    assert abs(moments[-1] - 3 * DAY) < 60_000
    pauses = [later - sooner for sooner, later in pairwise(moments)]
    assert pauses[0] <= FIRST_DELAY_MS + 5_000
    assert all(pause <= MAX_DELAY_MS + 5_000 for pause in pauses)
    assert len({request.headers["webhook-id"] for request in post.server.received}) == 1
    row = post.verbs.get_webhook(acme, webhook_id)
    assert (row.state, row.failing_since is not None) == ("disabled", True)
    assert row.disabled_reason is not None
    assert "status 500" in row.disabled_reason
    assert audit.list_entries(acme, AuditFilter(action="webhook.disable"), PageRequest()).items[0].subject == webhook_id
    (line,) = list_lines(acme, LineFilter(source="webhook"), PageRequest()).items
    assert "enable the webhook again" in line.message
    tell(acme, number=2)
    assert post.send_due() == 0, "a disabled webhook is told nothing"
    delivery = post.delivery(acme, webhook_id)
    with pytest.raises(Conflict, match="enable"):
        post.verbs.redeliver(acme, webhook_id, delivery.id)
    post.server.answer("/hook", 204, b"")
    post.verbs.change_webhook(acme, webhook_id, WebhookChange(enabled=True))
    post.verbs.redeliver(acme, webhook_id, delivery.id)
    assert post.send_due() == 1
    assert post.delivery(acme, webhook_id).status == "succeeded"
    assert post.verbs.get_webhook(acme, webhook_id).failing_since is None


def test_pauses_grow_and_are_spread() -> None:
    assert [delay_ms(tries, 0.0) for tries in (1, 2, 3)] == [5_000, 15_000, 45_000]
    assert delay_ms(1000, 0.0) == MAX_DELAY_MS
    assert delay_ms(2, 1.0) == 7_500


def test_a_receiver_that_asks_for_patience_gets_it(post: Post, acme: TenantScope) -> None:
    post.server.answer("/hook", 429, b"", Retry_After="3600")
    webhook_id, _ = post.subscribe(acme)
    tell(acme)
    post.send_due()
    assert post.delivery(acme, webhook_id).next_try_at >= clock.now_ms() + 3_590_000


def test_a_receiver_that_is_gone_is_told_nothing_more(post: Post, acme: TenantScope) -> None:
    post.server.answer("/hook", 410, b"")
    webhook_id, _ = post.subscribe(acme)
    tell(acme)
    post.send_due()
    assert post.verbs.get_webhook(acme, webhook_id).disabled_reason == "its URL responded with 410 Gone"
    assert post.delivery(acme, webhook_id).status == "failed"


def test_a_crash_between_sending_and_recording_sends_again_under_the_same_id(
    post: Post, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Clock(monkeypatch)
    webhook_id, secret = post.subscribe(acme)
    tell(acme, number=1)
    (claimed,) = db.write(partial(claim, acme, webhook_id, 5))
    assert post.deliverer.send(claimed).status == 204  # and the process dies here
    assert post.send_due() == 0, "nobody else sends it meanwhile"
    moved.offset = LEASE_MS + 1
    assert post.send_due() == 1
    first, second = post.server.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert verified(secret, first) == json.loads(second.body)
    assert post.delivery(acme, webhook_id).status == "succeeded"


def test_dead_receivers_delay_nobody_else(post: Post, acme: TenantScope, other: TenantScope) -> None:
    let_go = threading.Event()

    def hold(_request: Received) -> Answer:
        let_go.wait(30)
        return Answer(500, {}, b"")

    post.server.answer("/dead", 500, b"")
    for _ in range(40):
        post.subscribe(acme, "/dead")
    tell(acme)
    for _ in range(10):
        post.send_due()  # each has failed once by now
    post.server.answers["/dead"] = hold
    db.write(lambda: db.execute("UPDATE webhook_delivery SET next_try_at = 0 WHERE status = 'pending'"))
    held = post.deliverer.begin_due()
    try:
        assert len(held) == 16
        webhook_id, _ = post.subscribe(other)
        tell(other)
        begun = post.deliverer.begin_due()
        assert len(begun) == 1
        assert not wait(begun, 20).not_done
        assert post.delivery(other, webhook_id).status == "succeeded"
        assert not any(each.done() for each in held)
    finally:
        let_go.set()
        wait(held, 30)


def test_one_receiver_gets_few_messages_at_once_and_all_in_the_end(post: Post, acme: TenantScope) -> None:
    let_go = threading.Event()

    def hold(_request: Received) -> Answer:
        let_go.wait(30)
        return Answer(200, {}, b"")

    post.server.answers["/hook"] = hold
    post.subscribe(acme)
    for number in range(10):
        tell(acme, number=number)
    held = post.deliverer.begin_due()
    try:
        assert (len(held), post.deliverer.begin_due()) == (4, [])
    finally:
        let_go.set()
        wait(held, 30)
    assert [post.send_due() for _ in range(3)] == [4, 2, 0]
    assert len({request.headers["webhook-id"] for request in post.server.received}) == 10


def test_a_redirect_is_a_failure_and_is_not_followed(post: Post, acme: TenantScope) -> None:
    post.server.answer("/hook", 307, b"", Location="/elsewhere")
    webhook_id, _ = post.subscribe(acme)
    tell(acme)
    post.send_due()
    assert [request.path for request in post.server.received] == ["/hook"]
    assert post.delivery(acme, webhook_id).attempts[0]["status"] == 307


def test_a_long_answer_is_an_answer(post: Post, acme: TenantScope) -> None:
    post.server.answer("/hook", 200, b"x" * (1 << 20))
    webhook_id, _ = post.subscribe(acme)
    tell(acme)
    post.send_due()
    assert post.delivery(acme, webhook_id).status == "succeeded"


def test_an_address_inside_is_refused_when_it_is_given_and_when_a_name_leads_there(post: Post, acme: TenantScope) -> None:
    closed = Egress(resolver=lambda _host, _port: ["127.0.0.1"])
    verbs, deliverer = Webhooks(SEALER, closed), Deliverer(closed, SEALER)
    with pytest.raises(AddressNotAllowed):
        verbs.create_webhook(acme, WebhookSpec(post.server.url + "/hook", [FAILED]))
    row, _ = verbs.create_webhook(acme, WebhookSpec(f"http://good.example:{post.server.port}/hook", [FAILED]))
    with pytest.raises(AddressNotAllowed):
        verbs.change_webhook(acme, row.id, WebhookChange(url="http://[::ffff:169.254.169.254]/"))
    tell(acme)
    wait(deliverer.begin_due(), 20)
    deliverer.stop()
    assert "egress.allow" in post.delivery(acme, row.id).attempts[0]["error"]
    assert post.server.received == []


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
def test_what_cannot_work_is_refused(post: Post, acme: TenantScope, spec: WebhookSpec) -> None:
    with pytest.raises(ValidationFailed):
        post.verbs.create_webhook(acme, spec)


def test_secrets_are_sealed_and_redacted(post: Post, acme: TenantScope) -> None:
    logs.remember_secret("tops3cret-canary")
    webhook_id, secret = post.subscribe(acme)
    tell(acme, error={"message": "refused tops3cret-canary"})
    assert "tops3cret-canary" not in post.delivery(acme, webhook_id).payload
    stored = db.rows("SELECT url, events, description, sealed FROM webhook")
    assert secret.removeprefix("whsec_") not in repr([[str(bytes(v) if not isinstance(v, str) else v) for v in r] for r in stored])


def test_webhooks_of_another_tenant_are_not_there(post: Post, acme: TenantScope, other: TenantScope) -> None:
    webhook_id, _ = post.subscribe(acme)
    tell(acme)
    delivery = post.delivery(acme, webhook_id)
    for verb in (
        partial(post.verbs.get_webhook, other, webhook_id), partial(post.verbs.delete_webhook, other, webhook_id),
        partial(post.verbs.rotate_secret, other, webhook_id, 0), partial(post.verbs.send_test, other, webhook_id),
        partial(post.verbs.redeliver, other, webhook_id, delivery.id),
        partial(post.verbs.change_webhook, other, webhook_id, WebhookChange(enabled=False)),
    ):  # fmt: skip
        with pytest.raises(NotFound):
            verb()


def test_what_is_deleted_is_not_sent_and_what_is_old_goes(
    post: Post, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook_id, _ = post.subscribe(acme)
    tell(acme)
    post.verbs.delete_webhook(acme, webhook_id)
    assert post.send_due() == 0
    post.subscribe(acme)
    tell(acme)
    assert webhooks.purge(clock.now_ms() + 1) == 0, "what may still be tried stays"
    Clock(monkeypatch).offset = 7 * DAY
    assert webhooks.purge(clock.now_ms() - DAY) == 1
