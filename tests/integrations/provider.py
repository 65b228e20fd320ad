"""A strict OAuth 2 provider on loopback, and an API that accepts its tokens."""

import base64
import hashlib
import json
import threading
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from appliance.connectors.testing import Answer, LoopbackServer, Received

CLIENT, SECRET = "gos-client", "sé/cret & 4711-canary"


class Provider:
    """Codes and refresh tokens are single-use; `grants` records the requested grant types."""

    def __init__(self, *, client_auth: str = "post", rotates: bool = True, lasts: int | None = 3600) -> None:
        self.client_auth, self.rotates, self.lasts = client_auth, rotates, lasts
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh: set[str] = set()
        self.access: set[str] = set()
        self.issued: list[str] = []
        self.grants: list[str] = []
        self.refusal: Answer | None = None
        self._lock = threading.Lock()
        self.server = LoopbackServer()
        self.server.answers["/token"] = self._token
        self.server.answers["/api/me"] = self._api

    def auth(self, grant: str = "authorization_code", **more: Any) -> dict[str, Any]:
        """The `auth` block of an integration with this provider."""
        return {
            "kind": "oauth2", "grant": grant, "client_id": CLIENT, "client_secret": SECRET, "client_auth": self.client_auth,
            "token_url": f"{self.server.url}/token", "authorize_url": f"{self.server.url}/authorize", "scope": "read write", **more,
        }  # fmt: skip

    def settings(self, **auth: Any) -> dict[str, Any]:
        """Settings of the connector `http` for the API."""
        return {"base_url": f"{self.server.url}/api", "auth": self.auth(**auth), "retries": {"attempts": 1}}

    def allow(self, address: str, code: str = "code-1") -> str:
        """Consent to the authorization request as a user would; returns the URL the browser is sent to."""
        parts = urlsplit(address)
        params = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert parts.path == "/authorize"
        assert (params["response_type"], params["client_id"], params["code_challenge_method"]) == ("code", CLIENT, "S256")
        assert params["scope"] == "read write"
        assert len(params["state"]) >= 32
        self.codes[code] = params
        return f"{params['redirect_uri']}?{urlencode({'code': code, 'state': params['state']})}"

    def revoke(self) -> None:
        """Invalidate every token of this provider."""
        self.refresh.clear()
        self.access.clear()

    def close(self) -> None:
        self.server.close()

    def _token(self, request: Received) -> Answer:
        form = dict(parse_qsl(request.body.decode("ascii"), strict_parsing=True))
        with self._lock:
            self.grants.append(form["grant_type"])
            if self.refusal is not None:
                return self.refusal
            if not self._is_client(request, form):
                return _refuse("invalid_client", 401)
            return self._grant(form)

    def _is_client(self, request: Received, form: dict[str, str]) -> bool:
        if self.client_auth == "post":
            return (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET) and "authorization" not in request.headers
        kind, _, login = request.headers.get("authorization", "").partition(" ")
        client, _, secret = base64.b64decode(login).decode().partition(":")
        return kind == "Basic" and (unquote(client), unquote(secret)) == (CLIENT, SECRET) and "client_secret" not in form

    def _grant(self, form: dict[str, str]) -> Answer:
        match form["grant_type"]:
            case "client_credentials":
                return self._issue(form, with_refresh=False)
            case "refresh_token":
                if form["refresh_token"] not in self.refresh:
                    return _refuse("invalid_grant")
                if self.rotates:
                    self.refresh.remove(form["refresh_token"])
                return self._issue(form, with_refresh=self.rotates)
            case "authorization_code":
                authorization = self.codes.pop(form["code"], None)
                challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
                if authorization is None or form["redirect_uri"] != authorization["redirect_uri"]:
                    return _refuse("invalid_grant")
                if challenge != authorization["code_challenge"]:
                    return _refuse("invalid_grant")
                return self._issue(form, with_refresh=True)
        return _refuse("unsupported_grant_type")

    def _issue(self, form: dict[str, str], *, with_refresh: bool) -> Answer:
        number = len(self.issued) + 1
        access = f"access-token-{number}-canary"
        self.issued.append(access)
        self.access = {access}
        body: dict[str, Any] = {"access_token": access, "token_type": "Bearer", "scope": "read"}
        if self.lasts is not None:
            body["expires_in"] = self.lasts
        if with_refresh:
            body["refresh_token"] = f"refresh-token-{number}-canary"
            self.refresh.add(body["refresh_token"])
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def _api(self, request: Received) -> Answer:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.access:
            return Answer(401, body=b'{"error": "who are you"}')
        return Answer(200, {"Content-Type": "application/json"}, json.dumps({"seen": token}).encode())


def _refuse(code: str, status: int = 400) -> Answer:
    return Answer(status, body=json.dumps({"error": code, "error_description": f"no: {SECRET}"}).encode())
