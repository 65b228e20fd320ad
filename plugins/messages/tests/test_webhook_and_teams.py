"""The contract suites of `webhook` and `teams`, what they send, and the errors their failures map to."""

import json
import threading
from datetime import datetime
from typing import Any

import pytest
from gos_connector_messages import TeamsConnector, WebhookConnector
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    Connector,
    ConnectorError,
    Context,
    Json,
    Outcome,
    RateLimited,
    Rejected,
    TransientError,
)
from appliance.connectors.testing import Answer, ConnectorContract, LoopbackServer, Received, open_context, schema_problems

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVENT = {"type": "order.shipped", "data": {"order": "Größe 7"}}
CARD = {"card": {"type": "AdaptiveCard", "version": "1.4", "body": []}}


class TestWebhookContract(ConnectorContract):
    connector = WebhookConnector

    @pytest.fixture
    def settings(self, server: LoopbackServer) -> dict[str, Any]:
        return {"url": f"{server.url}/hook", "signing_secret": SECRET}

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"url": "http://127.0.0.1:1/hook"}


class TestTeamsContract(ConnectorContract):
    connector = TeamsConnector

    @pytest.fixture
    def settings(self, server: LoopbackServer) -> dict[str, Any]:
        return {"url": f"{server.url}/hook?sig=very-secret"}

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"url": "http://127.0.0.1:1/hook"}


# -- webhook


def test_the_official_verifier_accepts_the_signature(server: LoopbackServer, ctx: Context) -> None:
    it = WebhookConnector({"url": f"{server.url}/hook", "signing_secret": SECRET})
    output = it.call("send", EVENT, ctx)
    (received,) = server.received
    body = Webhook(SECRET).verify(received.body, received.headers)
    assert (body["type"], body["data"]) == ("order.shipped", {"order": "Größe 7"})
    assert datetime.fromisoformat(body["timestamp"]).tzinfo is not None
    assert output == {"id": received.headers["webhook-id"], "status": 202}
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(received.body.replace(b"7", b"8"), received.headers)


def test_the_id_depends_on_the_idempotency_key(server: LoopbackServer) -> None:
    it = WebhookConnector({"url": f"{server.url}/hook"})
    numbers = []
    for key in ("a", "a", "b"):
        with open_context(key=key) as ctx:
            numbers.append(it.call("send", EVENT, ctx)["id"])
    assert numbers[0] == numbers[1] != numbers[2]
    assert "webhook-signature" not in server.received[0].headers


def test_custom_headers_are_sent_and_replace_none_of_the_connectors(server: LoopbackServer, ctx: Context) -> None:
    headers = {"X-Shop": "1", "WEBHOOK-ID": "mine", "authorization": "theirs"}
    settings = {"url": f"{server.url}/hook", "authorization": "Bearer t", "headers": headers}
    output = WebhookConnector(settings).call("send", {**EVENT, "timestamp": "2026-01-01T00:00:00Z"}, ctx)
    received = server.received[-1]
    assert received.headers["x-shop"] == "1"
    assert received.headers["authorization"] == "Bearer t"
    assert received.headers["webhook-id"] == output["id"]
    assert json.loads(received.body)["timestamp"] == "2026-01-01T00:00:00Z"


def test_sending_is_idempotent_only_where_the_receiver_says_so() -> None:
    (send,) = WebhookConnector.actions
    assert WebhookConnector({"url": "http://a/"}).effect_of(send, {}) == "write"
    assert WebhookConnector({"url": "http://a/", "honoured": True}).effect_of(send, {}) == "idempotent"


def test_invalid_data_and_secrets_are_rejected_before_sending(server: LoopbackServer, ctx: Context) -> None:
    with pytest.raises(ConfigError, match="unpaired surrogate"):
        WebhookConnector({"url": f"{server.url}/hook"}).call("send", {"type": "a", "data": {"a": "\ud800"}}, ctx)
    for call in ("check", "call"):
        it = WebhookConnector({"url": f"{server.url}/hook", "signing_secret": "whsec_AAAAAAAAAAAAAAAAAAAAAAAAA"})
        with pytest.raises(ConfigError, match="followed by base64"):
            it.check(ctx) if call == "check" else it.call("send", EVENT, ctx)
    assert server.received == []


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({"url": "https://a.example/x?y=1", "signing_secret": SECRET}, True),
        ({"url": "https://user:password@a.example/"}, False),
        ({"url": "ftp://a.example/"}, False),
        ({"url": "https://a.example/", "signing_secret": "short"}, False),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: Json, fits: bool) -> None:
    assert (schema_problems(WebhookConnector.settings_schema, settings) == []) is fits


# -- teams


def test_a_text_becomes_a_card(server: LoopbackServer, ctx: Context) -> None:
    it = TeamsConnector({"url": f"{server.url}/hook?sig=very-secret"})
    params = {"title": "Order", "text": "Größe", "facts": {"Weight": 3, "Paid": True}, "links": {"Open": "https://a.example/"}}
    assert it.call("post", params, ctx) == {"status": 202}
    (received,) = server.received
    assert received.path == "/hook?sig=very-secret"
    sent = json.loads(received.body)
    (attachment,) = sent["attachments"]
    assert (sent["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert [each["type"] for each in card["body"]] == ["TextBlock", "TextBlock", "FactSet"]
    assert [each.get("text") for each in card["body"]] == ["Order", "Größe", None]
    assert card["body"][2]["facts"] == [{"title": "Weight", "value": "3"}, {"title": "Paid", "value": "true"}]
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": "Open", "url": "https://a.example/"}]


def test_a_card_is_sent_unchanged(server: LoopbackServer, ctx: Context) -> None:
    TeamsConnector({"url": f"{server.url}/hook"}).call("post_card", CARD, ctx)
    assert json.loads(server.received[-1].body)["attachments"][0]["content"] == CARD["card"]


def test_a_message_teams_would_refuse_is_not_sent(server: LoopbackServer, ctx: Context) -> None:
    it = TeamsConnector({"url": f"{server.url}/hook"})
    with pytest.raises(ConfigError, match="maximum in Teams"):
        it.call("post", {"text": "ü" * 15_000}, ctx)
    with pytest.raises(ConfigError, match="unpaired surrogate"):
        it.call("post", {"text": "\ud800"}, ctx)
    assert server.received == []


def test_the_webhook_address_is_a_secret(server: LoopbackServer, ctx: Context) -> None:
    assert TeamsConnector.settings_schema["properties"]["url"]["secret"] is True
    assert "very-secret" not in TeamsConnector({"url": f"{server.url}/hook?sig=very-secret"}).check(ctx)


# -- both


def call_error(it: Connector, action: str, params: Json, seconds: float = 20) -> ConnectorError:
    with open_context(seconds=seconds) as ctx, pytest.raises(ConnectorError) as caught:
        it.call(action, params, ctx)
    assert "very-secret" not in caught.value.message + json.dumps(caught.value.details)
    return caught.value


def calls_of_both(url: str) -> list[tuple[Connector, str, Json]]:
    webhook = WebhookConnector({"url": url, "authorization": "very-secret"})
    return [(webhook, "send", EVENT), (TeamsConnector({"url": f"{url}?sig=very-secret"}), "post_card", CARD)]


@pytest.mark.parametrize(
    ("status", "headers", "error", "outcome"),
    [
        (307, {"Location": "http://127.0.0.1:1/"}, ConfigError, "not_done"),
        (400, {}, Rejected, "not_done"),
        (401, {}, AuthError, "not_done"),
        (404, {}, ConfigError, "not_done"),
        (410, {}, ConfigError, "not_done"),
        (408, {}, TransientError, "not_done"),
        (429, {"Retry-After": "7"}, RateLimited, "not_done"),
        (503, {"Retry-After": "7"}, RateLimited, "not_done"),
        (503, {}, TransientError, "not_done"),
        (502, {}, TransientError, "unknown"),
        (501, {}, Rejected, "not_done"),
    ],
)
def test_statuses_map_to_contract_errors(
    server: LoopbackServer, status: int, headers: dict[str, str], error: type[ConnectorError], outcome: Outcome
) -> None:
    server.answers["/hook"] = lambda _: Answer(status, headers, b"because of that")
    for it, action, params in calls_of_both(f"{server.url}/hook"):
        raised = call_error(it, action, params)
        assert (type(raised), raised.outcome) == (error, outcome)
        assert raised.details == {"status": status, "body": "because of that"}
        if isinstance(raised, RateLimited):
            assert raised.retry_after == 7


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/hook", "http://no-such-host.invalid/hook"])
def test_an_unreachable_receiver_is_transient_and_not_done(url: str, ctx: Context) -> None:
    for it, action, params in calls_of_both(url):
        error = call_error(it, action, params)
        assert (type(error), error.outcome) == (TransientError, "not_done")
        with pytest.raises(TransientError):
            it.check(ctx)


def test_a_silent_receiver_leaves_the_outcome_unknown(server: LoopbackServer) -> None:
    silent = threading.Event()

    def wait(_: Received) -> Answer:
        silent.wait(20)
        return Answer()

    server.answers["/hook"] = wait
    errors = [call_error(it, action, params, seconds=1) for it, action, params in calls_of_both(f"{server.url}/hook")]
    silent.set()
    assert [(type(each), each.outcome) for each in errors] == [(TransientError, "unknown")] * 2
