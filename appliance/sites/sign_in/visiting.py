"""What a visitor's browser asked the sign-in of an app, and what it is answered; free of the server."""

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
from appliance.tenants.sign_in import Door
from appliance.webapps.access import Access, Place, Visitor

VISIT_COOKIE = "__Host-gos_visit"
ASK_COOKIE = "__Host-gos_ask"
SIGN_IN = "/_gos/sign-in"
ASK_MS = 600_000
NOT_HERE = {
    "title": mark("Not signed in"),
    "message": mark_error("this sign-in was begun in another browser, or too long ago; begin again"),
}


@dataclass(frozen=True)
class Page:
    """A template with its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    cookies: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Redirect:
    """Go there (303); a cookie is set or, with an empty value, taken away on the way."""

    url: str
    cookies: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Foreign:
    """What `work` answers, which waits for a foreign system."""

    work: "Callable[[], Page | Redirect]"


Answer = Page | Redirect | Foreign


@dataclass(frozen=True)
class Asked:
    """A request to the sign-in of an app; `headers` have lower-case names, `visitor` is who has a visit already."""

    scope: TenantScope
    app: str
    access: Access
    method: str
    path: str
    args: Mapping[str, str]
    form: Mapping[str, str]
    headers: Mapping[str, str]
    cookies: Mapping[str, str]
    scheme: str
    address: str
    visitor: Visitor | None = None

    @property
    def host(self) -> str:
        return self.headers.get("host", "")

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}"

    @property
    def place(self) -> Place:
        return Place(self.scope, self.app, split_host(self.host))

    @property
    def door(self) -> Door:
        return Door(self.scope, f"webapp:{self.app}", split_host(self.host))

    @property
    def key(self) -> tuple[str, str]:
        return self.scope.tenant_id, self.app

    @property
    def target(self) -> str:
        """Where to go after the sign-in."""
        return safe_target(self.form.get("to") or self.args.get("to", ""))


def read_cookies(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Cookies by name; of one that comes twice the first."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name == b"cookie":
            for pair in value.decode("latin1").split(";"):
                key, equals, content = pair.strip().partition("=")
                if equals:
                    found.setdefault(key, content.strip('"'))
    return found


def safe_target(target: str) -> str:
    """A path of this host to go to; anything that a browser could take for another place becomes the first page."""
    is_ours = unquote(target).startswith("/_gos/")
    return target if is_own_path(target) and not is_ours else "/"


def as_target(path: str, query: bytes) -> str:
    """The address of a request as a target."""
    asked = query.decode("latin1")
    return safe_target(quote(path, safe="/@:~!$&'()*,;=+") + (f"?{asked}" if asked else ""))


def can_hold_cookies(scheme: str, host: str) -> bool:
    """Whether a browser keeps `__Host-` cookies here: over HTTPS anywhere, over plain HTTP on localhost only."""
    name = split_host(host)
    return scheme == "https" or name == "localhost" or name.endswith(".localhost")


def is_from_here(asked: Asked) -> bool:
    """Whether a POST comes from a page of this host; one that does not say so is refused."""
    site = asked.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    return asked.headers.get("origin", "").lower() == asked.origin.lower()


def wants_page(headers: Mapping[str, str]) -> bool:
    """Whether somebody looks at the answer, and no script."""
    mode = headers.get("sec-fetch-mode")
    return mode == "navigate" if mode is not None else "text/html" in headers.get("accept", "").lower()


class AskCookie:
    """What this browser has asked for, sealed in a cookie of ten minutes: so it needs no row, and fits no other browser,
    host, app or tenant."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def make(self, asked: Asked, kind: str, values: Mapping[str, str]) -> dict[str, str]:
        """The cookie to set."""
        told = json.dumps({**values, "kind": kind, "until": clock.now_ms() + ASK_MS}).encode()
        return {ASK_COOKIE: base64.urlsafe_b64encode(self._sealer.seal(told, _context(asked))).decode("ascii")}

    def read(self, asked: Asked, kind: str) -> Mapping[str, str] | None:
        """What was asked for, when it was of this kind and not too long ago."""
        try:
            sealed = base64.urlsafe_b64decode(asked.cookies.get(ASK_COOKIE, ""))
            told: dict[str, Any] = json.loads(self._sealer.open(sealed, _context(asked)))
        except (ValueError, ConfigInvalid):
            return None
        return told if told["kind"] == kind and told["until"] > clock.now_ms() else None


def _context(asked: Asked) -> str:
    return f"{asked.scope.tenant_id}/ask/{asked.app}/{asked.place.host}"


def same(left: str, right: str) -> bool:
    """Whether two texts are equal, in a time that says nothing about them."""
    return bool(left) and hmac.compare_digest(left.encode("utf-8", "replace"), right.encode("utf-8", "replace"))


def new_state() -> str:
    return secrets.token_urlsafe(24)
