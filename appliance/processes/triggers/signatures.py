"""Verifies the signature of an inbound request: Standard Webhooks, HMAC variants, a shared header; pure.

Comparisons take constant time, and a signature that cannot be decoded counts as wrong.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.core.errors import InvalidSignature

TOLERANCE_S = 300
MOST_SIGNATURES = 20
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """An inbound request; header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    query: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class VerifiedRequest:
    """A verified request.

    `delivery` is its delivery id, None without one.  `content` is the digest of the signed content if the id is not part of
    it, because the same content with another id is a replay.
    """

    delivery: str | None
    content: str | None = None


def verify(settings: Settings, secret: str, request: Request, now_ms: int) -> VerifiedRequest:
    """Verifies that a request is genuine and recent; raises InvalidSignature with one message for every reason."""
    return _VERIFIERS[settings["kind"]](settings, secret, request, now_ms // 1000)


def refusal() -> InvalidSignature:
    return InvalidSignature("the request's signature is missing or wrong; check the secret and the sender's clock")


def _standard(settings: Settings, secret: str, request: Request, now: int) -> VerifiedRequest:
    delivery, moment = request.headers.get("webhook-id", ""), request.headers.get("webhook-timestamp", "")
    _check_fresh(moment, now)
    if not delivery:
        raise refusal()
    try:
        key = base64.b64decode(_padded(secret.strip().removeprefix("whsec_")), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise refusal()
    signed = f"{delivery}.{moment}.".encode() + request.body
    signatures = [part.partition(",") for part in request.headers.get("webhook-signature", "").split(" ")[:MOST_SIGNATURES]]
    _check_any(hmac.digest(key, signed, "sha256"), [_base64(text) for version, _, text in signatures if version == "v1"])
    return VerifiedRequest(delivery)


def _github(settings: Settings, secret: str, request: Request, now: int) -> VerifiedRequest:
    expected = hmac.digest(secret.encode(), request.body, "sha256")
    _check_any(expected, [_hex(_after("sha256=", request.headers.get("x-hub-signature-256", "")))])
    return VerifiedRequest(request.headers.get("x-github-delivery"), _digest(request.body))


def _stripe(settings: Settings, secret: str, request: Request, now: int) -> VerifiedRequest:
    parts = [part.strip().partition("=") for part in request.headers.get("stripe-signature", "").split(",")[:MOST_SIGNATURES]]
    moment = next((value for name, _, value in parts if name == "t"), "")
    _check_fresh(moment, now)
    signed = moment.encode() + b"." + request.body
    _check_any(hmac.digest(secret.encode(), signed, "sha256"), [_hex(value) for name, _, value in parts if name == "v1"])
    return VerifiedRequest(_member(request.body, "id") or _digest(signed))


def _slack(settings: Settings, secret: str, request: Request, now: int) -> VerifiedRequest:
    moment = request.headers.get("x-slack-request-timestamp", "")
    _check_fresh(moment, now)
    signed = b"v0:" + moment.encode() + b":" + request.body
    expected = hmac.digest(secret.encode(), signed, "sha256")
    _check_any(expected, [_hex(_after("v0=", request.headers.get("x-slack-signature", "")))])
    return VerifiedRequest(_member(request.body, "event_id") or _digest(signed))


def _hmac(settings: Settings, secret: str, request: Request, now: int) -> VerifiedRequest:
    signed = request.body
    if "timestamp_header" in settings:
        moment = request.headers.get(settings["timestamp_header"], "")
        _check_fresh(moment, now)
        signed = moment.encode() + b"." + request.body
    text = _after(settings["prefix"], request.headers.get(settings["header"], ""))
    signature = _hex(text) if settings["encoding"] == "hex" else _base64(text)
    _check_any(hmac.digest(secret.encode(), signed, settings["algorithm"]), [signature])
    content = _digest(signed)
    delivery = request.headers.get(settings["delivery_header"]) if "delivery_header" in settings else None
    return VerifiedRequest(delivery, content) if delivery else VerifiedRequest(content)


def _header(settings: Settings, secret: str, request: Request, now: int) -> VerifiedRequest:
    _check_any(secret.encode(), [request.headers.get(settings["header"], "").encode()])
    return _none(settings, secret, request, now)


def _none(settings: Settings, secret: str, request: Request, now: int) -> VerifiedRequest:
    name = settings.get("delivery_header")
    return VerifiedRequest(request.headers.get(name) if name else None)


_VERIFIERS: Mapping[str, Callable[[Settings, str, Request, int], VerifiedRequest]] = {
    "standard-webhooks": _standard, "github": _github, "stripe": _stripe, "slack": _slack, "hmac": _hmac, "header": _header,
    "none": _none,
}  # fmt: skip


def _check_fresh(moment: str, now: int) -> None:
    if not (moment.isascii() and moment.isdigit() and len(moment) <= 12) or abs(now - int(moment)) > TOLERANCE_S:
        raise refusal()


def _check_any(expected: bytes, signatures: list[bytes]) -> None:
    matching = [hmac.compare_digest(expected, each) for each in signatures if each]
    if not any(matching):
        raise refusal()


def _after(prefix: str, text: str) -> str:
    return text.removeprefix(prefix) if text.startswith(prefix) else ""


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _member(body: bytes, name: str) -> str | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) and value else None
