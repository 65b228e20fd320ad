"""Previews: the requests a connector would send are captured and shown without credentials, and nothing is sent."""

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
# Always redacted: their values may be derived from a secret and then differ from the value in the settings.
_CREDENTIALS = frozenset({"authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})
_MOST_BODY = 64 * 1024


class NothingLeaves(BaseException):
    """Ends a call before anything is sent.  Not an `Exception`, so that a plugin's `except Exception` does not catch it."""


@dataclass
class PreviewContext:
    """A `Context` without external access: the first attempt to use it ends the call with NothingLeaves.

    `requests` are the captured HTTP requests, as they were about to be sent.
    """

    idempotency_key: str
    deadline: float = field(default_factory=lambda: time.monotonic() + 10.0)
    requests: list[HttpRequest] = field(default_factory=list)

    @property
    def http(self) -> Http:
        return self

    def send(self, request: HttpRequest) -> NoReturn:
        """Capture the request instead of sending it."""
        self.requests.append(request)
        raise NothingLeaves

    @property
    def documents(self) -> Documents:
        raise NothingLeaves

    def dial(self, host: str, port: int) -> socket.socket:
        raise NothingLeaves

    def access_token(self, refused: str = "") -> str:
        """Return a placeholder, because fetching a real token would need a request."""
        return "token"

    def pause(self, seconds: float) -> bool:
        return False

    def log(self, level: Level, message: str, fields: Json | None = None) -> None:
        """Discard the line: a preview performs nothing worth logging."""

    def __getattr__(self, name: str) -> Any:
        """Treat everything else the contract offers as external access too."""
        if name.startswith("__"):
            raise AttributeError(name)

        def closed(*_: Any, **__: Any) -> NoReturn:
            raise NothingLeaves

        return closed


@dataclass(frozen=True)
class SentRequest:
    """One HTTP request; `body` is text, or base64 for binary content (`encoding`), truncated to 64 KiB of `body_bytes`."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: str
    encoding: Encoding
    body_bytes: int


@dataclass(frozen=True)
class Preview:
    """What a call would do: its action and input, with secrets redacted, and the requests known in advance."""

    action: str
    input: Any
    requests: tuple[SentRequest, ...]


def redact_request(redactor: Redactor, original: HttpRequest) -> SentRequest:
    """Return the request as it would be sent, with secrets and credentials redacted; ConfigError if it cannot be sent."""
    request = build_request(original)
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
    """Encode binary content as base64; empty when it contains a secret."""
    if redactor.text(content.decode("latin-1")) != content.decode("latin-1"):
        return ""
    return base64.b64encode(content[:_MOST_BODY]).decode("ascii")
