"""A request, read from its ASGI scope."""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import parse_qsl

import werkzeug.urls  # noqa: F401  registers the codec error handler `werkzeug.url_quote`

from appliance.tenants import PLACE, AdmissionSlot, HostMatch, NoSlot, split_host
from appliance.tenants.single_sign_on import ProxyLogin

from .asgi import Headers, Receive, Scope, Send, receive_pieces

PROXY_LOGIN = "gos.proxy_login"  # in the scope: what a trusted proxy says about who has sent the request
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, eq=False)
class Request:
    """One HTTP request after admission by the front; `pieces` is its body as it arrives."""

    scope: Scope
    pieces: AsyncIterator[bytes]

    @classmethod
    def of(cls, scope: Scope, receive: Receive) -> "Request":
        """The request of an ASGI application."""
        return cls(scope, receive_pieces(receive))

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """The path with percent-encoding decoded."""
        return str(self.scope["path"])

    @property
    def query_string(self) -> bytes:
        return bytes(self.scope["query_string"])

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Headers by lower-case name; several Cookie headers are joined, of others the last counts."""
        headers: dict[str, str] = {}
        for raw, value in self.scope["headers"]:
            name, text = raw.decode("latin1").lower(), value.decode("latin1")
            headers[name] = f"{headers[name]}; {text}" if name == "cookie" and name in headers else text
        return headers

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "")

    @property
    def content_length(self) -> int:
        """The announced length of the body in bytes; 0 when there is none."""
        announced = self.headers.get("content-length", "")
        return int(announced) if announced.isdecimal() else 0

    @cached_property
    def args(self) -> Mapping[str, list[str]]:
        """The values of each query parameter; bytes that are not UTF-8 stay percent-encoded."""
        args: dict[str, list[str]] = {}
        if not self.scope["query_string"]:
            return args
        query = self.query_string.decode("latin1")
        for name, value in parse_qsl(query, keep_blank_values=True, errors="werkzeug.url_quote"):
            args.setdefault(name, []).append(value)
        return args

    def arg(self, name: str) -> str:
        """The first value of a query parameter; empty when there is none."""
        return self.args.get(name, [""])[0]

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """Cookies by name; of a repeated name, the first counts."""
        return dict(reversed(list(cookie_pairs(self.scope["headers"]))))

    @property
    def scheme(self) -> str:
        return str(self.scope.get("scheme", "http"))

    @property
    def authority(self) -> str:
        """The host, with its port unless that is the scheme's default."""
        return self.headers.get("host", "").removesuffix(_DEFAULT_PORTS.get(self.scheme, ""))

    @property
    def origin(self) -> str:
        """The origin of pages on this host; the front has validated the host."""
        return f"{self.scheme}://{self.authority}"

    @property
    def can_hold_cookies(self) -> bool:
        """Whether browsers accept `__Host-` cookies on this host: over HTTPS always, over plain HTTP only on localhost."""
        name = split_host(self.authority)
        return self.scheme == "https" or name == "localhost" or name.endswith(".localhost")

    @property
    def host(self) -> HostMatch:
        """The entry of the host table that matched this request."""
        match: HostMatch = self.scope["gos.host"]
        return match

    @property
    def tenant(self) -> str:
        """The id of the host's tenant; empty on the base host."""
        return self.host.tenant or ""

    @property
    def request_id(self) -> str:
        return str(self.scope["gos.request_id"])

    @property
    def address(self) -> str:
        """The address of the client, behind trusted proxies."""
        return str(self.scope["gos.address"])

    @property
    def proxy_login(self) -> ProxyLogin | None:
        """Who has sent the request, as a proxy of `sign_in.trusted_headers` says; for the console only."""
        login: ProxyLogin | None = self.scope.get(PROXY_LOGIN)
        return login

    @property
    def trace(self) -> str:
        """The position of the request's span; empty while tracing is off."""
        return str(self.scope.get("gos.trace", ""))

    @property
    def slot(self) -> AdmissionSlot:
        """The slot that the front has given the request."""
        return slot_of(self.scope)


@dataclass(frozen=True, eq=False)
class Exchange:
    """One ASGI request and the channel to respond to it."""

    scope: Scope
    receive: Receive
    send: Send

    @cached_property
    def request(self) -> Request:
        """The request; its body is read once."""
        return Request.of(self.scope, self.receive)


def slot_of(scope: Scope) -> AdmissionSlot:
    """The slot of a request; one without effect for a request of the appliance itself."""
    slot: AdmissionSlot | None = scope.get(PLACE)
    return slot or NoSlot()


def cookie_pairs(headers: Headers) -> Iterator[tuple[str, str]]:
    """Name and value of every cookie, without the quotes around a value."""
    for name, value in headers:
        if name.lower() == b"cookie":
            for pair in value.decode("latin1").split(";"):
                key, equals, content = pair.strip().partition("=")
                if equals:
                    yield key, content.strip('"')
