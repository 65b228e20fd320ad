"""Requests to the sign-in of an app, and its responses, independent of the server."""

import base64
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ConfigInvalid
from appliance.core.scope import TenantScope
from appliance.core.targets import is_own_path
from appliance.core.texts import mark, mark_error
from appliance.tenants import split_host
from appliance.tenants.sign_in import CodeTarget
from appliance.web import Request
from appliance.webapps.access import Access, SignInTarget, Visitor

VISIT_COOKIE = "__Host-gos_visit"
SIGN_IN_COOKIE = "__Host-gos_ask"
SIGN_IN = "/_gos/sign-in"
SIGN_IN_MS = 600_000
EXPIRED_SIGN_IN = {
    "title": mark("Not signed in"),
    "message": mark_error("this sign-in was started in another browser, or too long ago; start again"),
}


@dataclass(frozen=True)
class Page:
    """A page: its template and values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    cookies: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Redirect:
    """A redirect (303), which can also set cookies or, with an empty value, delete them."""

    url: str
    cookies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExternalCall:
    """Work that waits for another system, and returns the response."""

    work: "Callable[[], Page | Redirect]"


SignInResponse = Page | Redirect | ExternalCall


@dataclass(frozen=True)
class SignInRequest:
    """A request to the sign-in of an app; `visitor` is set when a session already exists."""

    scope: TenantScope
    app: str
    access: Access
    http: Request
    form: Mapping[str, str] = field(default_factory=dict)
    visitor: Visitor | None = None

    @property
    def place(self) -> SignInTarget:
        return SignInTarget(self.scope, self.app, split_host(self.http.authority))

    @property
    def door(self) -> CodeTarget:
        return CodeTarget(self.scope, f"webapp:{self.app}", split_host(self.http.authority))

    @property
    def key(self) -> tuple[str, str]:
        return self.scope.tenant_id, self.app

    @property
    def target(self) -> str:
        """Where to go after the sign-in."""
        return safe_target(self.form.get("to") or self.http.arg("to"))


def safe_target(target: str) -> str:
    """The target if it is a path of this host outside the sign-in, otherwise `/`."""
    is_ours = unquote(target).startswith("/_gos/")
    return target if is_own_path(target) and not is_ours else "/"


def to_target(path: str, query: bytes) -> str:
    """The path and query of a request as a target."""
    query_text = query.decode("latin1")
    return safe_target(quote(path, safe="/@:~!$&'()*,;=+") + (f"?{query_text}" if query_text else ""))


def wants_page(headers: Mapping[str, str]) -> bool:
    """Whether a person views the response in a browser, as opposed to a script."""
    mode = headers.get("sec-fetch-mode")
    return mode == "navigate" if mode is not None else "text/html" in headers.get("accept", "").lower()


class SignInCookie:
    """The state of a running sign-in, sealed in a cookie for ten minutes. It needs no database row, and is valid only for this
    browser, host, app and tenant."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def create(self, request: SignInRequest, kind: str, values: Mapping[str, str]) -> dict[str, str]:
        """The cookie to set."""
        payload = json.dumps({**values, "kind": kind, "until": clock.now_ms() + SIGN_IN_MS}).encode()
        return {SIGN_IN_COOKIE: base64.urlsafe_b64encode(self._sealer.seal(payload, _context(request))).decode("ascii")}

    def read(self, request: SignInRequest, kind: str) -> Mapping[str, str] | None:
        """The values of the cookie if it is of this kind and has not expired, otherwise None."""
        try:
            sealed = base64.urlsafe_b64decode(request.http.cookies.get(SIGN_IN_COOKIE, ""))
            values: dict[str, Any] = json.loads(self._sealer.open(sealed, _context(request)))
        except (ValueError, ConfigInvalid):
            return None
        return values if values["kind"] == kind and values["until"] > clock.now_ms() else None


def _context(request: SignInRequest) -> str:
    return f"{request.scope.tenant_id}/ask/{request.app}/{request.place.host}"


def is_equal(left: str, right: str) -> bool:
    """Compare two texts in constant time."""
    return bool(left) and hmac.compare_digest(left.encode("utf-8", "replace"), right.encode("utf-8", "replace"))


def new_state() -> str:
    return secrets.token_urlsafe(24)
