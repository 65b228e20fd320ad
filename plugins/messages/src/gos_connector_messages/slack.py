"""The connector `slack`: posts and updates messages and finds people through Slack's Web API or an incoming webhook."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode

from appliance.connectors.contract import (
    Action,
    AuthError,
    ConfigError,
    Connector,
    ConnectorError,
    Context,
    HttpAnswer,
    HttpRequest,
    Json,
    Outcome,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
    excerpt,
    retry_after,
)
from gos_connector_messages.answer import error_of, probe
from gos_connector_messages.slack_declaration import ACTIONS, SETTINGS, USUAL_CHANNELS

_USUAL_BASE = "https://slack.com/api"
_PAGE = 200
_AUTH_ERRORS = frozenset({
    *("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "no_permission", "missing_scope"),
    *("not_allowed_token_type", "ekm_access_denied", "access_denied", "org_login_required", "team_access_not_granted"),
    *("accesslimited", "two_factor_setup_required", "enterprise_is_restricted"),
})  # fmt: skip
_RATE_LIMIT_ERRORS = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
# Slack documents that some of the work may have been done after the first two.
_FAILURES: Mapping[str, Outcome] = {
    "internal_error": "unknown",
    "fatal_error": "unknown",
    "service_unavailable": "unknown",
    "request_timeout": "not_done",
    "team_added_to_org": "not_done",
}


class SlackConnector(Connector):
    """A Slack app with a bot token, an incoming webhook, or both."""

    contract_version = 1
    name = "slack"
    title = "Slack"
    version = "0.1.0"
    tested_against = "a loopback test server that follows what Slack publishes"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._base: str = settings.get("base_url", _USUAL_BASE).rstrip("/")
        self.verbs = {
            "post": self._post, "update": self._update, "notify": self._notify, "find_user": self._find_user,
            "channels": self._channels,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        if "token" not in self.settings:
            url = self._webhook_url()
            return f"{probe(url, ctx)} accepts connections. Post a message to test the webhook itself."
        response = self._read("auth.test", {}, ctx)
        return f"Signed in to Slack as {str(response.get('user'))[:80]} of {str(response.get('team'))[:80]}."

    # -- the actions

    def _post(self, params: Json, ctx: Context) -> dict[str, Any]:
        body = {"channel": params["channel"], **_build_message(params)}
        if "thread" in params:
            body["thread_ts"] = params["thread"]
        return _message_location(self._write("chat.postMessage", body, ctx))

    def _update(self, params: Json, ctx: Context) -> dict[str, Any]:
        body = {"channel": params["channel"], "ts": params["ts"], **_build_message(params)}
        return _message_location(self._write("chat.update", body, ctx))

    def _notify(self, params: Json, ctx: Context) -> dict[str, Any]:
        headers = [("Content-Type", "application/json; charset=utf-8")]
        answer = self._send(self._webhook_url(), headers, _encode(_build_message(params)), ctx)
        error = error_of(answer, "Slack")
        if error is not None:
            raise error
        if answer.content.strip() != b"ok":
            raise _invalid_response(answer, changes=True)
        return {"posted": True}

    def _find_user(self, params: Json, ctx: Context) -> dict[str, Any]:
        try:
            user = self._read("users.lookupByEmail", {"email": params["email"]}, ctx).get("user")
        except Rejected as refusal:
            if refusal.details.get("error") == "users_not_found":
                return {"user": None}
            raise
        if not isinstance(user, dict) or not isinstance(user.get("id"), str):
            raise SystemFailure("Slack's answer contains no user.")
        raw_profile = user.get("profile")
        profile: Mapping[str, Any] = raw_profile if isinstance(raw_profile, dict) else {}
        fields = {"id": user["id"], "name": user.get("name"), "real_name": user.get("real_name") or profile.get("real_name"),
                 "email": profile.get("email"), "time_zone": user.get("tz")}  # fmt: skip
        view: dict[str, Any] = {name: value for name, value in fields.items() if isinstance(value, str)}
        return {"user": {**view, "deleted": user.get("deleted") is True, "bot": user.get("is_bot") is True}}

    def _channels(self, params: Json, ctx: Context) -> dict[str, Any]:
        limit = params.get("limit", USUAL_CHANNELS)
        types = "public_channel,private_channel" if params.get("private", False) else "public_channel"
        query = {"types": types, "exclude_archived": "true", "limit": str(_PAGE)}
        channels: list[dict[str, Any]] = []
        seen: set[str] = set()
        cursor = ""
        while len(channels) <= limit:
            response = self._read("conversations.list", {**query, **({"cursor": cursor} if cursor else {})}, ctx)
            channels += _channels_of(response)
            cursor = _cursor_of(response)
            if not cursor:
                break
            if cursor in seen:
                raise SystemFailure("Slack returned the same page twice; its paging does not end.")
            seen.add(cursor)
        return {"channels": channels[:limit], "truncated": len(channels) > limit}

    # -- requests

    def _webhook_url(self) -> str:
        url = self.settings.get("webhook_url")
        if url is None:
            raise ConfigError("The settings have no `webhook_url`; set it, or use a `token` and the action post.")
        return str(url)

    def _write(self, method: str, body: Json, ctx: Context) -> dict[str, Any]:
        headers = [*self._authorization(), ("Content-Type", "application/json; charset=utf-8")]
        return _parse_response(self._send(f"{self._base}/{method}", headers, _encode(body), ctx), changes=True)

    def _read(self, method: str, query: Mapping[str, str], ctx: Context) -> dict[str, Any]:
        headers = [*self._authorization(), ("Content-Type", "application/x-www-form-urlencoded")]
        try:
            content = urlencode(query).encode("ascii")
        except UnicodeEncodeError as error:
            raise ConfigError("The input contains an unpaired surrogate character; remove it.") from error
        try:
            return _parse_response(self._send(f"{self._base}/{method}", headers, content, ctx), changes=False)
        except ConnectorError as error:
            error.outcome = "not_done"  # The method only reads.
            raise

    def _authorization(self) -> list[tuple[str, str]]:
        token = self.settings.get("token")
        if token is None:
            raise ConfigError("The settings have no `token`; set it, or use a `webhook_url` and the action notify.")
        return [("Authorization", f"Bearer {token}")]

    def _send(self, url: str, headers: list[tuple[str, str]], content: bytes, ctx: Context) -> HttpAnswer:
        return ctx.http.send(
            HttpRequest("POST", url, headers, (), content, self.settings.get("timeout_s", 30), follow_redirects=False)
        )


def _build_message(params: Json) -> dict[str, Any]:
    """Build text and blocks.  Unless `formatted`, the text is escaped, so values cannot become links or `<!channel>`."""
    text = params["text"]
    if not params.get("formatted", False):
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": text, **({"blocks": params["blocks"]} if "blocks" in params else {})}


def _encode(body: Json) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise ConfigError("The message contains an unpaired surrogate character; remove it.") from error


def _parse_response(answer: HttpAnswer, *, changes: bool) -> dict[str, Any]:
    """Return the body of an answer with `ok: true`; raise the contract's error for any other."""
    error = error_of(answer, "Slack")
    if error is not None:
        raise error
    try:
        body = json.loads(answer.content)
    except (ValueError, RecursionError) as decode_error:
        raise _invalid_response(answer, changes=changes) from decode_error
    if not isinstance(body, dict) or not isinstance(body.get("ok"), bool):
        raise _invalid_response(answer, changes=changes)
    if not body["ok"]:
        raise _to_error(body, answer)
    return body


def _to_error(body: Mapping[str, Any], answer: HttpAnswer) -> ConnectorError:
    code = str(body.get("error", "no reason"))[:100]
    metadata = body.get("response_metadata")
    messages = metadata.get("messages") if isinstance(metadata, Mapping) else None
    details: dict[str, Any] = {"error": code}
    if isinstance(messages, list) and messages:
        details["messages"] = [str(each)[:300] for each in messages[:10]]
    if code in _AUTH_ERRORS:
        needed = str(body.get("needed", ""))[:200]
        scope = f"; the app needs the scope {needed}" if needed else ""
        return AuthError(f"Slack does not accept the token, or it lacks a permission ({code}{scope}).", details=details)
    if code in _RATE_LIMIT_ERRORS:
        return RateLimited(f"Slack limits the request rate ({code}).", retry_after=retry_after(answer), details=details)
    if code in _FAILURES:
        return TransientError(f"Slack failed ({code}).", outcome=_FAILURES[code], details=details)
    reason = f" ({details['messages'][0]})" if "messages" in details else ""
    return Rejected(f"Slack refused: {code}{reason}.", details=details)


def _message_location(response: Mapping[str, Any]) -> dict[str, Any]:
    channel, timestamp = response.get("channel"), response.get("ts")
    if not isinstance(channel, str) or not isinstance(timestamp, str):
        raise SystemFailure("Slack's answer contains no channel and timestamp of the message.", outcome="unknown")
    return {"channel": channel, "ts": timestamp}


def _channels_of(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    channels = response.get("channels")
    if not isinstance(channels, list) or not all(isinstance(each, dict) and isinstance(each.get("id"), str) for each in channels):
        raise SystemFailure("Slack's answer contains no list of channels.")
    return [
        {"id": each["id"], "name": str(each.get("name", "")), "private": each.get("is_private") is True,
         "member": each.get("is_member") is True}
        for each in channels
    ]  # fmt: skip


def _cursor_of(response: Mapping[str, Any]) -> str:
    metadata = response.get("response_metadata")
    cursor = metadata.get("next_cursor") if isinstance(metadata, Mapping) else ""
    return cursor if isinstance(cursor, str) else ""


def _invalid_response(answer: HttpAnswer, *, changes: bool) -> SystemFailure:
    details = {"status": answer.status, "body": excerpt(answer, 300)}
    return SystemFailure(
        "The answer is not from Slack; check the address.", outcome="unknown" if changes else "not_done", details=details
    )
