"""What a preview shows of a request that would be sent: everything but credentials.  Pure."""

import base64
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from appliance.connectors.redaction import Redactor

Encoding = Literal["text", "base64"]
_BLOT = "[redacted]"
# Blotted whatever they hold: what they carry need not be a secret of the settings as it stands there.
_CREDENTIALS = frozenset({"authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})
_MOST_BODY = 64 * 1024


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


def shown_request(redactor: Redactor, request: httpx.Request) -> SentRequest:
    """The request with the integration's secrets and every credential blotted out."""
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
