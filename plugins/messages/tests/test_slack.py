"""The contract suite of `slack`, its actions, and the errors its refusals map to."""

import json
from typing import Any

import pytest
from gos_connector_messages import SlackConnector

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Outcome,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import Answer, ConnectorContract, schema_problems

Slack = Any
CHANNEL = "C0123456789"
SECRETS = ("xoxb-very-secret", "/services/T0")


class TestContract(ConnectorContract):
    connector = SlackConnector

    @pytest.fixture
    def settings(self, slack: Slack) -> dict[str, Any]:
        return dict(slack.settings)

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"token": "xoxb-1", "base_url": "http://127.0.0.1:1/api"}


@pytest.fixture
def it(slack: Slack) -> SlackConnector:
    return SlackConnector(slack.settings)


def call_error(it: SlackConnector, ctx: Context, action: str, **params: Any) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        it.call(action, params, ctx)
    text = caught.value.message + json.dumps(caught.value.details)
    assert not any(secret in text for secret in SECRETS)
    return caught.value


def test_messages_are_posted_threaded_and_updated(it: SlackConnector, slack: Slack, ctx: Context) -> None:
    posted = it.call("post", {"channel": CHANNEL, "text": "Grüße"}, ctx)
    assert slack.messages[CHANNEL, posted["ts"]] == {"channel": CHANNEL, "text": "Grüße"}
    blocks = [{"type": "divider"}]
    reply = it.call("post", {"channel": CHANNEL, "text": "a", "thread": posted["ts"], "blocks": blocks}, ctx)
    sent = {"channel": CHANNEL, "text": "a", "thread_ts": posted["ts"], "blocks": blocks}
    assert slack.messages[CHANNEL, reply["ts"]] == sent
    assert it.call("update", {"channel": CHANNEL, "ts": posted["ts"], "text": "anders"}, ctx) == posted
    assert slack.messages[CHANNEL, posted["ts"]]["text"] == "anders"


def test_markup_is_escaped_unless_the_text_is_formatted(it: SlackConnector, slack: Slack, ctx: Context) -> None:
    text = "<!channel> & <https://evil.example|here>"
    it.call("notify", {"text": text}, ctx)
    it.call("notify", {"text": text, "formatted": True}, ctx)
    assert [each["text"] for each in slack.notified] == ["&lt;!channel&gt; &amp; &lt;https://evil.example|here&gt;", text]
    posted = it.call("post", {"channel": CHANNEL, "text": text}, ctx)
    assert slack.messages[CHANNEL, posted["ts"]]["text"].startswith("&lt;!channel&gt;")


def test_find_user_by_email(it: SlackConnector, ctx: Context) -> None:
    assert it.call("find_user", {"email": "anna@example.com"}, ctx)["user"] == {
        "id": "U1", "name": "anna", "real_name": "Anna Müller", "email": "anna@example.com", "time_zone": "Europe/Berlin",
        "deleted": False, "bot": False,
    }  # fmt: skip
    assert it.call("find_user", {"email": "nobody@example.com"}, ctx) == {"user": None}


def test_channels_are_read_page_by_page(it: SlackConnector, ctx: Context, slack: Slack) -> None:
    output = it.call("channels", {}, ctx)
    assert [each["id"] for each in output["channels"]] == ["C00", "C01", "C10", "C11", "C20", "C21"]
    assert output["channels"][2] == {"id": "C10", "name": "channel-10", "private": True, "member": False}
    assert output["truncated"] is False
    assert b"types=public_channel&" in slack.last().body
    few = it.call("channels", {"limit": 3, "private": True}, ctx)
    assert (len(few["channels"]), few["truncated"]) == (3, True)
    assert b"types=public_channel%2Cprivate_channel&" in slack.last().body


def test_check_names_the_user_of_the_token(it: SlackConnector, slack: Slack, ctx: Context) -> None:
    assert it.check(ctx) == "Signed in to Slack as gos of Example."
    hook = SlackConnector({"webhook_url": slack.settings["webhook_url"]}).check(ctx)
    assert "accepts connections" in hook
    assert "very-secret" not in hook


def test_each_action_names_the_setting_it_needs(slack: Slack, ctx: Context) -> None:
    only_hook = SlackConnector({"webhook_url": slack.settings["webhook_url"]})
    assert only_hook.call("notify", {"text": "a"}, ctx) == {"posted": True}
    assert "no `token`" in call_error(only_hook, ctx, "post", channel=CHANNEL, text="a").message
    only_token = SlackConnector({"token": "xoxb-1"})
    assert "no `webhook_url`" in call_error(only_token, ctx, "notify", text="a").message
    assert schema_problems(SlackConnector.settings_schema, {}) != []


def test_a_wrong_token_is_reported_without_it(slack: Slack, ctx: Context) -> None:
    it = SlackConnector({**slack.settings, "token": "xoxb-wrong"})
    with pytest.raises(AuthError, match="invalid_auth") as caught:
        it.check(ctx)
    assert "xoxb-wrong" not in caught.value.message + json.dumps(caught.value.details)


def test_refusals_carry_slacks_reason(it: SlackConnector, ctx: Context) -> None:
    error = call_error(it, ctx, "post", channel="C9", text="a")
    assert (type(error), error.outcome, error.message) == (Rejected, "not_done", "Slack refused: channel_not_found.")
    error = call_error(it, ctx, "post", channel=CHANNEL, text="a", blocks=[{"type": "nonsense"}])
    assert error.message == "Slack refused: invalid_blocks ([ERROR] unsupported type: nonsense)."
    assert "unpaired surrogate" in call_error(it, ctx, "post", channel=CHANNEL, text="\ud800").message
    assert "unpaired surrogate" in call_error(it, ctx, "find_user", email="\ud800@example.com").message


@pytest.mark.parametrize(
    ("body", "error", "outcome"),
    [
        ({"ok": False, "error": "missing_scope", "needed": "chat:write"}, AuthError, "not_done"),
        ({"ok": False, "error": "ratelimited"}, RateLimited, "not_done"),
        ({"ok": False, "error": "internal_error"}, TransientError, "unknown"),
        ({"ok": False, "error": "request_timeout"}, TransientError, "not_done"),
        ({"ok": False, "error": "msg_too_long"}, Rejected, "not_done"),
        ({"ok": False}, Rejected, "not_done"),
        ({"ok": True}, SystemFailure, "unknown"),
        ({"ok": "yes"}, SystemFailure, "unknown"),
        ([], SystemFailure, "unknown"),
    ],
)
def test_answers_map_to_contract_errors(
    it: SlackConnector, slack: Slack, ctx: Context, body: Any, error: type[ConnectorError], outcome: Outcome
) -> None:
    slack.server.answers["/api/chat.postMessage"] = lambda _: Answer(200, {"Retry-After": "7"}, json.dumps(body).encode())
    raised = call_error(it, ctx, "post", channel=CHANNEL, text="a")
    assert (type(raised), raised.outcome) == (error, outcome)
    if isinstance(raised, RateLimited):
        assert raised.retry_after == 7
    if isinstance(raised, AuthError):
        assert "needs the scope chat:write" in raised.message


@pytest.mark.parametrize(
    ("status", "headers", "content", "error", "outcome"),
    [
        (429, {"Retry-After": "30"}, b"", RateLimited, "not_done"),
        (400, {}, b"invalid_payload", Rejected, "not_done"),
        (403, {}, b"action_prohibited", AuthError, "not_done"),
        (404, {}, b"no_service", ConfigError, "not_done"),
        (302, {"Location": "http://127.0.0.1:1/"}, b"", ConfigError, "not_done"),
        (500, {}, b"rollup_error", TransientError, "unknown"),
        (503, {}, b"", TransientError, "not_done"),
        (200, {}, b"<html>", SystemFailure, "unknown"),
    ],
)
def test_statuses_map_to_contract_errors(
    it: SlackConnector, slack: Slack, ctx: Context, status: int, headers: dict[str, str], content: bytes,
    error: type[ConnectorError], outcome: Outcome,
) -> None:  # fmt: skip
    """Long because each part of an answer is a parameter."""
    for path in ("/services/T0/B0/very-secret", "/api/chat.postMessage", "/api/users.lookupByEmail"):
        slack.server.answers[path] = lambda _: Answer(status, headers, content)
    for raised in (call_error(it, ctx, "notify", text="a"), call_error(it, ctx, "post", channel=CHANNEL, text="a")):
        assert (type(raised), raised.outcome) == (error, outcome)
        if isinstance(raised, RateLimited):
            assert raised.retry_after == 30
    assert call_error(it, ctx, "find_user", email="anna@example.com").outcome == "not_done"


@pytest.mark.parametrize("body", [{"ok": True}, {"ok": True, "user": {"id": 1}}, {"ok": True, "user": []}])
def test_a_malformed_user_is_a_failure(it: SlackConnector, slack: Slack, ctx: Context, body: Any) -> None:
    slack.server.answers["/api/users.lookupByEmail"] = lambda _: Answer(200, {}, json.dumps(body).encode())
    assert type(call_error(it, ctx, "find_user", email="anna@example.com")) is SystemFailure


@pytest.mark.parametrize(
    "body",
    [{"ok": True}, {"ok": True, "channels": [1]}, {"ok": True, "channels": [], "response_metadata": {"next_cursor": "again"}}],
)
def test_a_malformed_channel_list_is_a_failure(it: SlackConnector, slack: Slack, ctx: Context, body: Any) -> None:
    slack.server.answers["/api/conversations.list"] = lambda _: Answer(200, {}, json.dumps(body).encode())
    assert type(call_error(it, ctx, "channels")) is SystemFailure
