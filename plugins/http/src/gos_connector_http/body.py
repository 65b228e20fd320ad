"""The body of a request: JSON, form, multipart or raw."""

import base64
import binascii
import json
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from appliance.connectors.contract import ConfigError
from gos_connector_http.target import pairs_of, text_of

_KINDS = ("json", "form", "multipart", "raw")


def build_body(call: Mapping[str, Any]) -> tuple[bytes, str | None]:
    """The bytes and their Content-Type (None without a body); ConfigError when the call has more than one body."""
    kinds = [kind for kind in _KINDS if kind in call]
    if len(kinds) > 1:
        raise ConfigError(f"A call has only one body; this one has {' and '.join(kinds)}.")
    match kinds:
        case ["json"]:
            return json.dumps(call["json"], ensure_ascii=False, separators=(",", ":")).encode(), "application/json"
        case ["form"]:
            return urlencode(pairs_of(call["form"])).encode("ascii"), "application/x-www-form-urlencoded"
        case ["multipart"]:
            return _multipart(call["multipart"])
        case ["raw"]:
            raw = call["raw"]
            return _bytes(raw, "text"), raw.get(
                "content_type", "application/octet-stream" if "base64" in raw else "text/plain"
            )
    return b"", None


def _multipart(parts: list[Mapping[str, Any]]) -> tuple[bytes, str]:
    """The parts as multipart/form-data (RFC 7578), with names and file names escaped as browsers escape them."""
    boundary = secrets.token_hex(16)
    out: list[bytes] = []
    for part in parts:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_escape(part["name"])}"'
        if "filename" in part:
            head += f'; filename="{_escape(part["filename"])}"'
        if content_type := part.get("content_type", "application/octet-stream" if "filename" in part else None):
            if "\r" in content_type or "\n" in content_type:
                raise ConfigError("`content_type` must not contain a line break.")
            head += f"\r\nContent-Type: {content_type}"
        out += [head.encode(), b"\r\n\r\n", _bytes(part, "value"), b"\r\n"]
    out.append(f"--{boundary}--\r\n".encode())
    return b"".join(out), f"multipart/form-data; boundary={boundary}"


def _escape(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _bytes(source: Mapping[str, Any], text_member: str) -> bytes:
    if "base64" in source and text_member in source:
        raise ConfigError(f"Give either `{text_member}` or `base64`, not both.")
    if "base64" not in source:
        return text_of(source.get(text_member, "")).encode()
    try:
        return base64.b64decode(source["base64"], validate=True)
    except binascii.Error as error:
        raise ConfigError("`base64` is not valid base64.") from error
