"""The responses of routes: the output of a process, its `$response`, or an error without internals. Pure functions."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from appliance.core.errors import ApplianceError, ProcessFailed, Rejected, http_status
from appliance.core.sentences import Sentence
from appliance.core.texts import ENGLISH, Language, mark, mark_error
from appliance.web import BACK, PAGE_POLICY, VARY, error_response, refusal_page

Pairs = tuple[tuple[str, str], ...]
DEFAULT_HEADERS: Pairs = (
    ("cache-control", "no-store"), ("x-content-type-options", "nosniff"), ("x-robots-tag", "noindex"),
    ("referrer-policy", "strict-origin-when-cross-origin"), ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "SAMEORIGIN"),
)  # fmt: skip
SANDBOX_HEADERS: Pairs = (("content-security-policy", "default-src 'none'; frame-ancestors 'none'; sandbox"),)
# Headers that a process may set; the others are set by the appliance, or would reach beyond the app.
SAFE = frozenset({"cache-control", "content-disposition", "content-language", "content-type", "location", "retry-after"})
_OWN_HEADER = re.compile(r"x-[a-z0-9-]{1,60}")
_NOT_OWN = ("x-content-type-options", "x-forwarded-", "x-frame-options", "x-request-id", "x-robots-tag", "x-accel-")
_VALUE = re.compile(r"[\x20-\x7e]{0,2000}")
_LOCATION = re.compile(r"(/(?![/\\])|https?://)[\x21-\x7e]{0,1999}")
FAILED = mark_error("this did not work; try again later, and if it keeps failing, give the request id to the app's owner")
INVALID = mark("Some of the entered values are not valid:")
VARYING: Pairs = tuple((name.lower(), value.lower()) for name, value in VARY.items())
"""The header of a response whose sentences are in the visitor's language."""


@dataclass(frozen=True)
class Reply:
    """A complete response; `execution_id` and `process_id` are for the log."""

    status: int
    body: bytes = b""
    headers: Pairs = ()
    execution_id: str | None = None
    process_id: str | None = None

    def with_headers(self, *headers: tuple[str, str]) -> "Reply":
        return replace(self, headers=(*self.headers, *headers))

    def encoded(self) -> list[tuple[bytes, bytes]]:
        """The headers plus our defaults for those that are missing."""
        names = {name for name, _ in self.headers}
        defaults = [pair for pair in DEFAULT_HEADERS if pair[0] not in names]
        return [(name.encode(), value.encode("latin1")) for name, value in (*self.headers, *defaults)]


def as_json(status: int, data: Mapping[str, Any], *headers: tuple[str, str]) -> Reply:
    body = json.dumps(data, ensure_ascii=False).encode("utf8", "replace")
    return Reply(status, body, (("content-type", "application/json"), *SANDBOX_HEADERS, *headers))


def success(output: Any) -> Reply:
    """The response `{success, data}`, or the one described by `$response`; ProcessFailed when that is invalid."""
    if isinstance(output, dict) and "$response" in output:
        return _parse_response(output["$response"])
    return as_json(200, {"success": True, "data": output})


def visible_output(output: Any) -> Any:
    """The part of an output that the browser following the execution sees."""
    if isinstance(output, dict) and isinstance(output.get("$response"), dict):
        return output["$response"].get("body")
    return output


def _parse_response(response: Any) -> Reply:
    if not isinstance(response, dict) or not response.keys() <= {"status", "headers", "body"}:
        raise ProcessFailed("$response must be {status, headers, body}")
    status, raw_headers, body = response.get("status", 200), response.get("headers") or {}, response.get("body")
    if isinstance(status, float) and math.isfinite(status) and status == int(status):
        status = int(status)
    if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599 or not isinstance(raw_headers, dict):
        raise ProcessFailed("$response.status must be a number from 200 to 599, and its headers an object")
    headers = {str(name).lower(): value for name, value in raw_headers.items()}
    for name, value in headers.items():
        if not _is_allowed_header(name) or not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ProcessFailed(Sentence("$response cannot set the header %(name)s, or not to this value", name=repr(name[:60])))
    if "location" in headers and not _LOCATION.fullmatch(headers["location"]):
        raise ProcessFailed("$response.headers.location must be a path of the app or a URL with https://")
    if body is None or status in (204, 304):
        return Reply(status, b"", tuple(headers.items()))
    if isinstance(body, str):
        headers.setdefault("content-type", "text/plain; charset=utf-8")
        return Reply(status, body.encode("utf8", "replace"), tuple(headers.items()))
    return replace(as_json(status, body), headers=(*SANDBOX_HEADERS, *({"content-type": "application/json"} | headers).items()))


def _is_allowed_header(name: str) -> bool:
    return name in SAFE or (_OWN_HEADER.fullmatch(name) is not None and not name.startswith(_NOT_OWN))


def failure_of(error: Mapping[str, Any] | None) -> ApplianceError:
    """The error shown for a failed execution: only errors thrown by its own code with the code `rejected` are passed on."""
    if error is not None and error.get("failure_class") == "user_code" and error.get("code") == "rejected":
        return Rejected(str(error.get("message", ""))[:1000])
    return ProcessFailed(FAILED)


def to_error_reply(error: ApplianceError, request_id: str, language: Language = ENGLISH, *, as_page: bool = False) -> Reply:
    """The response for a coded error, in the language of the visitor; a page if a plain form was sent."""
    status = http_status(error)
    extra = tuple((name.lower(), value) for name, value in error.headers.items())
    if as_page:
        own = (("content-type", "text/html; charset=utf-8"), ("content-security-policy", PAGE_POLICY))
        return Reply(status, _page(error, request_id, language), (*own, *VARYING, *extra))
    body = error_response(error, request_id, visitor=language).body
    return Reply(status, body, (("content-type", "application/json"), *SANDBOX_HEADERS, *VARYING, *extra))


def _label(pointer: str) -> str:
    return pointer.strip("/").replace("/", " ").replace("_", " ")


def _page(error: ApplianceError, request_id: str, language: Language) -> bytes:
    """An error page for people who know field names, but not processes or pointers."""
    translate, gettext = language.translate, language.catalogue.gettext
    fields = [f"{_label(each.pointer)}: {translate(each.message)}" for each in error.details if each.pointer.strip("/")]
    lines = [gettext(INVALID), *fields] if fields else [translate(error.message)]
    return refusal_page(lines, request_id, ("/", gettext(BACK)), language=language)
