"""What a route answers: the output of a process, what its `$response` says, a refusal without internals; pure."""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.core.errors import ApplianceError, ProcessFailed, Rejected, http_status
from appliance.core.sentences import Sentence

Pairs = tuple[tuple[str, str], ...]
OURS: Pairs = (
    ("cache-control", "no-store"), ("x-content-type-options", "nosniff"), ("x-robots-tag", "noindex"),
    ("referrer-policy", "strict-origin-when-cross-origin"), ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "SAMEORIGIN"),
)  # fmt: skip
CLOSED: Pairs = (("content-security-policy", "default-src 'none'; frame-ancestors 'none'; sandbox"),)
# What a process may say of its answer; everything else is the appliance's, or would reach beyond the app.
SAFE = frozenset({"cache-control", "content-disposition", "content-language", "content-type", "location", "retry-after"})
_OWN_HEADER = re.compile(r"x-[a-z0-9-]{1,60}")
_NOT_OWN = ("x-content-type-options", "x-forwarded-", "x-frame-options", "x-request-id", "x-robots-tag", "x-accel-")
_VALUE = re.compile(r"[\x20-\x7e]{0,2000}")
_PLACE = re.compile(r"(/(?![/\\])|https?://)[\x21-\x7e]{0,1999}")
_STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}body{margin:0}"
    "main{max-width:36rem;margin:3rem auto;padding:0 1rem;overflow-wrap:anywhere}h1{font-size:1.5rem;line-height:1.25}"
)
_STYLE_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_OF_PAGE = (
    "content-security-policy",
    f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; img-src data:; frame-ancestors 'none'",
)
FAILED = "this did not work; try again later, and tell the app's owner the request id if it goes on"


@dataclass(frozen=True)
class Reply:
    """A whole answer; `execution_id` and `process_id` are for the log."""

    status: int
    body: bytes = b""
    headers: Pairs = ()
    execution_id: str | None = None
    process_id: str | None = None

    def adding(self, *headers: tuple[str, str]) -> "Reply":
        return replace(self, headers=(*self.headers, *headers))

    def encoded(self) -> list[tuple[bytes, bytes]]:
        """The headers with our own; what the reply says itself counts."""
        said = {name for name, _ in self.headers}
        kept = [pair for pair in OURS if pair[0] not in said]
        return [(name.encode(), value.encode("latin1")) for name, value in (*self.headers, *kept)]


def as_json(status: int, data: Mapping[str, Any], *headers: tuple[str, str]) -> Reply:
    body = json.dumps(data, ensure_ascii=False).encode("utf8", "replace")
    return Reply(status, body, (("content-type", "application/json"), *CLOSED, *headers))


def succeeded(output: Any) -> Reply:
    """`{success, data}`, or what `$response` says; ProcessFailed when it cannot be sent."""
    if isinstance(output, dict) and "$response" in output:
        return _said(output["$response"])
    return as_json(200, {"success": True, "data": output})


def output_shown(output: Any) -> Any:
    """What a browser that follows an execution sees of its output."""
    if isinstance(output, dict) and isinstance(output.get("$response"), dict):
        return output["$response"].get("body")
    return output


def _said(said: Any) -> Reply:
    if not isinstance(said, dict) or not said.keys() <= {"status", "headers", "body"}:
        raise ProcessFailed("$response is {status, headers, body}")
    status, given, body = said.get("status", 200), said.get("headers") or {}, said.get("body")
    if isinstance(status, float) and math.isfinite(status) and status == int(status):
        status = int(status)
    if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599 or not isinstance(given, dict):
        raise ProcessFailed("$response.status is a number from 200 to 599, its headers are an object")
    headers = {str(name).lower(): value for name, value in given.items()}
    for name, value in headers.items():
        if not _may_say(name) or not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ProcessFailed(Sentence("$response may not say the header %(name)s, or not so", name=repr(name[:60])))
    if "location" in headers and not _PLACE.fullmatch(headers["location"]):
        raise ProcessFailed("$response.headers.location is a path of the app or an address with https://")
    if body is None or status in (204, 304):
        return Reply(status, b"", tuple(headers.items()))
    if isinstance(body, str):
        headers.setdefault("content-type", "text/plain; charset=utf-8")
        return Reply(status, body.encode("utf8", "replace"), tuple(headers.items()))
    return replace(as_json(status, body), headers=(*CLOSED, *({"content-type": "application/json"} | headers).items()))


def _may_say(name: str) -> bool:
    return name in SAFE or (_OWN_HEADER.fullmatch(name) is not None and not name.startswith(_NOT_OWN))


def failure_of(error: Mapping[str, Any] | None) -> ApplianceError:
    """What is told of a failed execution: only what its own code threw with the code `rejected`."""
    if error is not None and error.get("failure_class") == "user_code" and error.get("code") == "rejected":
        return Rejected(str(error.get("message", ""))[:1000])
    return ProcessFailed(FAILED)


def refused(error: ApplianceError, request_id: str, *, as_page: bool = False) -> Reply:
    """A coded error; as a page for whoever sent a plain form."""
    status = http_status(error)
    extra = tuple((name.lower(), value) for name, value in error.headers.items())
    if as_page:
        return Reply(status, _page(error, request_id), (("content-type", "text/html; charset=utf-8"), _OF_PAGE, *extra))
    details = [{"pointer": each.pointer, "code": each.code, "message": each.message} for each in error.details]
    told = {"code": error.code, "message": error.message, "status": status, "request_id": request_id, "details": details}
    return as_json(status, {"success": False, "error": told}, *extra)


def _label(pointer: str) -> str:
    return pointer.strip("/").replace("/", " ").replace("_", " ")


def _page(error: ApplianceError, request_id: str) -> bytes:
    """For somebody who knows the names of fields, and nothing of processes and pointers."""
    fields = [f"{_label(each.pointer)}: {each.message}" for each in error.details if each.pointer.strip("/")]
    said = ["Some of what was entered cannot be taken:", *fields] if fields else [error.message]
    lines = "".join(f"<p>{html.escape(line[:1].upper() + line[1:])}</p>" for line in said)
    title = "That did not work"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main><h1>{title}</h1>{lines}"
        f'<p><a href="/">Back to the app</a></p><p><small>Request {html.escape(request_id)}</small></p></main></body></html>'
    ).encode()
