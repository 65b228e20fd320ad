"""Request bodies: chooses one of the document's content types and serializes the body."""

import base64
import binascii
import json
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from appliance.connectors.contract import ConfigError
from gos_connector_openapi.document import Document
from gos_connector_openapi.parameters import Pairs, text_of, write_pairs

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


def is_json(media: str) -> bool:
    """Whether a media type is JSON or JSON-based (`+json`)."""
    essence = media.split(";", maxsplit=1)[0].strip().lower()
    return essence in ("application/json", "text/json") or essence.endswith("+json")


def is_text(media: str) -> bool:
    """Whether a media type is text other than JSON."""
    essence = media.split(";", maxsplit=1)[0].strip().lower()
    return essence.startswith("text/") or essence.endswith("+xml") or essence in ("application/xml", "application/javascript")


def _kind(media: str) -> str:
    essence = media.split(";", maxsplit=1)[0].strip().lower()
    if is_json(media) or essence in ("*/*", "application/*"):
        return "json"
    if essence == FORM:
        return "form"
    if essence == MULTIPART:
        return "multipart"
    return "text" if is_text(media) else "binary"


_PREFERENCE = ("json", "form", "multipart", "text", "binary")


def body_plan(document: Document, body: Mapping[str, Any]) -> tuple[dict[str, Any] | None, Any]:
    """How the body is serialized, and its schema; None when the document has no content type for it."""
    content = document.mapping(body.get("content"))
    if not content:
        return None, None
    media = min(map(str, content), key=lambda each: _PREFERENCE.index(_kind(each)))
    described = document.mapping(content[media])
    kind = _kind(media)
    step: dict[str, Any] = {"kind": kind, "type": "application/json" if "*" in media else media}
    schema = described.get("schema")
    if kind in ("form", "multipart"):
        step |= _parts(document, document.mapping(schema), document.mapping(described.get("encoding")))
    return step, {"type": "string"} if kind == "text" else schema


def _parts(document: Document, schema: Mapping[str, Any], encoding: Mapping[str, Any]) -> dict[str, Any]:
    members = document.mapping(schema.get("properties"))
    files = [str(name) for name, part in members.items() if _is_file(document, part)]
    styles: dict[str, Any] = {}
    for name, each in encoding.items():
        described = document.mapping(each)
        options = {key: described[key] for key in ("style", "explode", "contentType") if isinstance(described.get(key), str | bool)}
        if options:
            styles[str(name)] = options
    return {"files": files, "encoding": styles}


def _is_file(document: Document, part: Any) -> bool:
    schema = document.mapping(part)
    if schema.get("type") == "array":
        schema = document.mapping(schema.get("items"))
    return schema.get("format") in ("binary", "base64") or "contentMediaType" in schema


def write_body(step: Mapping[str, Any], value: Any) -> tuple[bytes, str]:
    """The bytes and their Content-Type."""
    match step["kind"]:
        case "json":
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), step["type"]
        case "form":
            return urlencode(_form_pairs(step, _object(value))).encode("ascii"), FORM
        case "multipart":
            return _multipart(step, _object(value))
        case "text":
            return text_of(value).encode(), step["type"]
    return _decode_base64(value), step["type"]


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError("The body of this action is a form: pass an object.")
    return value


def _form_pairs(step: Mapping[str, Any], value: Mapping[str, Any]) -> Pairs:
    pairs: Pairs = []
    for name, inner in value.items():
        chosen = step.get("encoding", {}).get(name, {})
        style = chosen.get("style", "form")
        if inner is None:
            continue
        if isinstance(inner, dict) and style == "form":
            pairs.append((name, text_of(inner)))
        else:
            parameter = {"name": name, "style": style, "explode": chosen.get("explode", style in ("form", "deepObject"))}
            pairs += write_pairs(parameter, inner)
    return pairs


def _multipart(step: Mapping[str, Any], value: Mapping[str, Any]) -> tuple[bytes, str]:
    """The body and Content-Type of a multipart form (RFC 7578), names and file names escaped as browsers do."""
    boundary = secrets.token_hex(16)
    out: list[bytes] = []
    for name, inner in value.items():
        is_file, chosen = name in step.get("files", ()), step.get("encoding", {}).get(name, {})
        if isinstance(inner, list) and not is_file and chosen.get("explode") is False:
            values = [write_pairs({"name": name, **chosen}, inner)[0][1]]
        else:
            values = inner if isinstance(inner, list) else [inner]
        for each in values:
            content, content_type, filename = _part(each, is_file, chosen.get("contentType"))
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_escape(name)}"'
            head += f'; filename="{_escape(filename)}"' if filename else ""
            head += f"\r\nContent-Type: {content_type}" if content_type else ""
            out += [head.encode(), b"\r\n\r\n", content, b"\r\n"]
    out.append(f"--{boundary}--\r\n".encode())
    return b"".join(out), f"{MULTIPART}; boundary={boundary}"


def _part(value: Any, is_file: bool, usual_type: str | None) -> tuple[bytes, str, str]:
    """Bytes, content type and file name of one part."""
    if is_file and isinstance(value, dict):
        content_type = str(value.get("content_type") or usual_type or "application/octet-stream").split(",")[0]
        return _decode_base64(value.get("base64", "")), _one_line(content_type), str(value.get("filename", "file"))
    if is_file:
        return text_of(value).encode(), _one_line((usual_type or "application/octet-stream").split(",")[0]), "file"
    if isinstance(value, dict | list):
        return text_of(value).encode(), _one_line((usual_type or "application/json").split(",")[0]), ""
    return text_of(value).encode(), _one_line((usual_type or "").split(",")[0]), ""


def _one_line(text: str) -> str:
    if "\r" in text or "\n" in text:
        raise ConfigError("A content_type must be one line.")
    return text.strip()


def _escape(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _decode_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError("This action sends bytes: pass them in base64.") from error
