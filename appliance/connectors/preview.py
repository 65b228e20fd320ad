"""Previews: what a connector would send is kept and shown without credentials, and nothing leaves."""

import base64
import socket
import time
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from appliance.connectors.contract import Documents, Http, HttpRequest, Json, Level
from appliance.connectors.egress import build_request
from appliance.connectors.redaction import Redactor

Encoding = Literal["text", "base64"]
_BLOT = "[redacted]"
# Blotted whatever they hold: what they carry need not be a secret of the settings as it stands there.
_CREDENTIALS = frozenset({"authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})
_MOST_BODY = 64 * 1024


class NothingLeaves(BaseException):
    """Ends a call at the door.  No `Exception`, so that a plugin that handles whatever fails does not go on."""


@dataclass
class PreviewContext:
    """A `Context` without a way out: the first use of any door ends the call with NothingLeaves.

    `requests` are the HTTP requests that came to the door, as they were about to be sent.
    """

    idempotency_key: str
    deadline: float = field(default_factory=lambda: time.monotonic() + 10.0)
    requests: list[HttpRequest] = field(default_factory=list)

    @property
    def http(self) -> Http:
        return self

    def send(self, request: HttpRequest) -> NoReturn:
        """`Http.send` that keeps the request instead."""
        self.requests.append(request)
        raise NothingLeaves

    @property
    def documents(self) -> Documents:
        raise NothingLeaves

    def dial(self, host: str, port: int) -> socket.socket:
        raise NothingLeaves

    def access_token(self, refused: str = "") -> str:
        """Stands for a token, which only a request of its own would fetch."""
        return "token"

    def pause(self, seconds: float) -> bool:
        return False

    def log(self, level: Level, message: str, fields: Json | None = None) -> None:
        """Nothing: what did not happen leaves no line."""

    def __getattr__(self, name: str) -> Any:
        """Whatever else the contract offers is a door as well."""
        if name.startswith("__"):
            raise AttributeError(name)

        def closed(*_: Any, **__: Any) -> NoReturn:
            raise NothingLeaves

        return closed


@dataclass(frozen=True)
class SentRequest:
    """One HTTP request; `body` is text, or base64 where it is none (`encoding`), cut after 64 KiB of `body_bytes`."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: str
    encoding: Encoding
    body_bytes: int


@dataclass(frozen=True)
class Preview:
    """What a call would do: its action and input, secrets blotted out, and the requests that can be told beforehand."""

    action: str
    input: Any
    requests: tuple[SentRequest, ...]


def shown_request(redactor: Redactor, wanted: HttpRequest) -> SentRequest:
    """The request as it would be sent, the integration's secrets and every credential blotted out; ConfigError if it cannot be."""
    request = build_request(wanted)
    headers = [(name, _value(redactor, name, value)) for name, value in request.headers.multi_items()]
    content = request.content
    encoding: Encoding
    try:
        body, encoding = redactor.text(content.decode())[:_MOST_BODY], "text"
    except UnicodeDecodeError:
        body, encoding = _as_base64(redactor, content), "base64"
    return SentRequest(request.method, redactor.text(str(request.url)), tuple(headers), body, encoding, len(content))


def _value(redactor: Redactor, name: str, value: str) -> str:
    if name.lower() not in _CREDENTIALS:
        return redactor.text(value)
    scheme, _, rest = value.partition(" ")
    return f"{scheme} {_BLOT}" if rest and name.lower() == "authorization" else _BLOT


def _as_base64(redactor: Redactor, content: bytes) -> str:
    """Bytes that are no text are shown as long as no secret is in them."""
    if redactor.text(content.decode("latin-1")) != content.decode("latin-1"):
        return ""
    return base64.b64encode(content[:_MOST_BODY]).decode("ascii")
