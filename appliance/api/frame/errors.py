"""Turns problems that pydantic finds in a request into coded errors."""

from typing import Any

from pydantic import ValidationError

from appliance.core.errors import ApplianceError, Detail, InvalidJson, InvalidRequest, ValidationFailed
from appliance.core.sentences import Sentence

from .fields import OBJECT, TEXT

_CODES = {"missing": "required", "extra_forbidden": "unknown_member"}


def from_pydantic(error: ValidationError, *, query: bool = False) -> ApplianceError:
    """Convert a pydantic error to one coded error whose details list every problem."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    if problems and problems[0]["type"] == "json_invalid":
        return InvalidJson(Sentence("the body is not JSON: %(msg)s", msg=problems[0]['msg'].removeprefix('Invalid JSON: ')))
    details = [
        Detail(_pointer(item["loc"]), _CODES.get(item["type"], "invalid"), _message(item))
        for item in problems
    ]
    first = f"{details[0].pointer}: {details[0].message}"
    if query:
        return InvalidRequest(Sentence("the query string is not valid, %(first)s", first=first), details=details)
    return ValidationFailed(Sentence("the body is not valid, %(first)s", first=first), details=details)


def _pointer(place: tuple[str | int, ...]) -> str:
    return "/" + "/".join(_escape(part) for part in place if part not in (TEXT, OBJECT))


def _escape(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _message(item: Any) -> str:
    if item["type"] == "missing":
        return "this member is required"
    if item["type"] == "extra_forbidden":
        return "this member is not known; remove it or check its spelling"
    text = str(item["msg"])
    return text[:1].lower() + text[1:]
