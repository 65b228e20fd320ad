"""OAuth 2 as a client: tokens by client credentials, authorization code with PKCE and refresh (RFC 6749, RFC 7636)."""

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from appliance.connectors.auth import OAuth
from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Http,
    HttpAnswer,
    HttpRequest,
    RateLimited,
    SystemFailure,
    TransientError,
    retry_after,
)

ASK_SECONDS = 20.0
_MOST_BYTES = 64 * 1024
_ERROR_CODE = re.compile(r"[a-z][a-z0-9_]{1,40}")
_MARGIN_S = 60.0


class GrantRefused(AuthError):
    """The provider has revoked or expired the grant: a person must connect the integration again."""


class Tokens(Protocol):
    """The source of access tokens for a call."""

    def access_token(self, refused: str, until: float) -> str:
        """Return a token other than `refused`; gives up at `until` (monotonic seconds)."""


@dataclass(frozen=True)
class TokenAnswer:
    """Tokens issued by a provider; `renew_in` is in seconds, less a safety margin, None when the provider gave no lifetime."""

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    renew_in: float | None = None
    scope: str = ""
    id_token: str = field(default="", repr=False)


def make_verifier() -> str:
    """Generate a PKCE code verifier (RFC 7636 § 4.1) of 256 bits."""
    return secrets.token_urlsafe(32)


def consent_address(oauth: OAuth, redirect_uri: str, state: str, verifier: str) -> str:
    """Build the URL of the provider's consent page (RFC 6749 § 4.1.1, RFC 7636 § 4.3 with S256)."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode("ascii")).digest()).decode("ascii").rstrip("=")
    params = {
        **oauth.authorize_params,
        "response_type": "code",
        "client_id": oauth.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    if oauth.scope:
        params["scope"] = oauth.scope
    return f"{oauth.authorize_url}?{urlencode(params, quote_via=quote)}"


def request_by_code(http: Http, oauth: OAuth, code: str, verifier: str, redirect_uri: str) -> TokenAnswer:
    """Exchange an authorization code for tokens."""
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": verifier}
    return _ask(http, oauth, form)


def request_by_refresh(http: Http, oauth: OAuth, refresh_token: str) -> TokenAnswer:
    """Refresh the tokens; a refresh token in the response replaces the one that was sent."""
    return _ask(http, oauth, {"grant_type": "refresh_token", "refresh_token": refresh_token})


def request_by_client(http: Http, oauth: OAuth) -> TokenAnswer:
    """Request a token by the client credentials grant."""
    form = {"grant_type": "client_credentials"}
    return _ask(http, oauth, {**form, "scope": oauth.scope} if oauth.scope else form)


def _ask(http: Http, oauth: OAuth, form: Mapping[str, str]) -> TokenAnswer:
    """Send a token request.

    GrantRefused, AuthError, ConfigError, RateLimited, TransientError or SystemFailure; no message contains a token.
    """
    sent = {**oauth.token_params, **form}
    headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json")]
    if oauth.client_auth == "basic" and oauth.client_secret:
        # RFC 6749 § 2.3.1: both parts are form-encoded first.
        login = f"{quote(oauth.client_id, safe='')}:{quote(oauth.client_secret, safe='')}".encode()
        headers.append(("Authorization", f"Basic {base64.b64encode(login).decode('ascii')}"))
    else:
        sent["client_id"] = oauth.client_id
        if oauth.client_secret:
            sent["client_secret"] = oauth.client_secret
    request = HttpRequest(
        "POST", oauth.token_url, headers, (), urlencode(sent).encode("ascii"), ASK_SECONDS, follow_redirects=False,
        max_bytes=_MOST_BYTES,
    )  # fmt: skip
    try:
        answer = http.send(request)
    except ConnectorError as error:
        error.outcome = "not_done"  # a token request changes nothing in the foreign system
        raise
    return _read(answer, [form.get(name, "") for name in ("code", "code_verifier", "refresh_token")] + [oauth.client_secret])


def _read(answer: HttpAnswer, secrets_sent: list[str]) -> TokenAnswer:
    status = answer.status
    if status == 429:
        message = "The token endpoint limits the request rate (429)."
        raise RateLimited(message, retry_after=retry_after(answer), details={"status": status})
    if status >= 500 or status == 408:
        raise TransientError(f"The token endpoint failed ({status}).", details={"status": status})
    if 300 <= status < 400:
        raise ConfigError(f"The token endpoint redirects ({status}); check token_url.", details={"status": status})
    body = _json_object(answer)
    if status >= 400 or ("error" in body and "access_token" not in body):
        raise _refusal(status, body, secrets_sent)
    token, kind = body.get("access_token"), str(body.get("token_type", "bearer"))
    # The errors below leave out the body because it may contain part of a token.
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
        raise SystemFailure("The token endpoint did not return an access token; check token_url.")
    if kind.lower() != "bearer":
        raise SystemFailure("The token endpoint returned a token of a type other than bearer, which is not supported.")
    refresh = body.get("refresh_token")
    refresh, identity = (value if isinstance(value, str) else "" for value in (refresh, body.get("id_token")))
    return TokenAnswer(token, refresh, _renew_in(body), str(body.get("scope", ""))[:2000], identity)


def _json_object(answer: HttpAnswer) -> dict[str, Any]:
    try:
        body = json.loads(answer.content)
    except (ValueError, RecursionError):
        body = None
    return body if isinstance(body, dict) else {}


def _renew_in(body: Mapping[str, Any]) -> float | None:
    """Return the seconds after which to renew: slightly before expiry, so that a token does not expire in transit."""
    try:
        lasts = float(body["expires_in"])
    except (KeyError, TypeError, ValueError):
        return None
    return max(0.0, lasts - min(_MARGIN_S, lasts / 10)) if 0 <= lasts < 1e9 else None


def _refusal(status: int, body: Mapping[str, Any], secrets_sent: list[str]) -> ConnectorError:
    code = str(body.get("error", ""))
    code = code if _ERROR_CODE.fullmatch(code) else ""
    description = str(body.get("error_description", ""))[:300]
    for secret in filter(None, secrets_sent):
        description = description.replace(secret, "[redacted]")
    details = {"status": status, "error": code, "description": description}
    if code == "invalid_grant":
        return GrantRefused("The provider no longer accepts the connection; connect again.", details=details)
    if code in ("invalid_client", "unauthorized_client") or not code:
        message = f"The token endpoint rejects the client ({status}); check client_id, client_secret and scope."
        return AuthError(message, details=details)
    return AuthError(f"The token endpoint issued no token ({code}); check scope and grant.", details=details)


class ClientTokens:
    """Tokens of the client credentials grant, held in memory: for tests and dry runs without a stored integration."""

    def __init__(self, oauth: OAuth, http: Http) -> None:
        self._oauth = oauth
        self._http = http
        self._token = ""

    def access_token(self, refused: str, until: float) -> str:
        if self._token in ("", refused):
            self._token = request_by_client(self._http, self._oauth).access_token
        return self._token
