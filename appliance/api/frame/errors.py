"""Renders coded errors as HTTP answers: the envelope of docs/contract.md § 3, or RFC 9457 when the caller accepts it."""

import json
import logging
from typing import Any

from pydantic import ValidationError

from appliance.core.errors import ApplianceError, Detail, InvalidJson, InvalidRequest, ValidationFailed, http_status
from appliance.core.sentences import Sentence

log = logging.getLogger(__name__)

INTERNAL = "something went wrong in the appliance; tell its operator the request id, the log has the rest"
_CODES = {"missing": "required", "extra_forbidden": "unknown_member"}


def error_body(error: BaseException, request_id: str, accept: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of an error; an exception without a code is logged in full and answered as `internal`."""
    if not isinstance(error, ApplianceError):
        log.error("unhandled error", exc_info=error)
        error = ApplianceError(INTERNAL)
    status = http_status(error)
    details = [{"pointer": d.pointer, "code": d.code, "message": d.message} for d in error.details]
    if "application/problem+json" in accept:
        problem = {
            "type": f"urn:gos:error:{error.code}", "title": error.code.replace("_", " "), "status": status,
            "detail": error.message, "instance": f"urn:gos:request:{request_id}", "code": error.code,
            "request_id": request_id, "errors": details, **error.extra,
        }  # fmt: skip
        return status, _dump(problem), {**error.headers, "Content-Type": "application/problem+json"}
    body = {
        "success": False,
        "error": {
            "code": error.code, "message": error.message, "status": status, "request_id": request_id,
            "details": details, **error.extra,
        },
    }  # fmt: skip
    return status, _dump(body), {**error.headers, "Content-Type": "application/json"}


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf8", "replace")


def from_pydantic(error: ValidationError, *, query: bool = False) -> ApplianceError:
    """Convert a pydantic error to one coded error whose details list every problem."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    if problems and problems[0]["type"] == "json_invalid":
        return InvalidJson(Sentence("the body is not JSON: %(msg)s", msg=problems[0]['msg'].removeprefix('Invalid JSON: ')))
    details = [
        Detail("/" + "/".join(_escape(part) for part in item["loc"]), _CODES.get(item["type"], "invalid"), _message(item))
        for item in problems
    ]
    first = f"{details[0].pointer}: {details[0].message}"
    if query:
        return InvalidRequest(Sentence("the query string is not valid, %(first)s", first=first), details=details)
    return ValidationFailed(Sentence("the body is not valid, %(first)s", first=first), details=details)


def _escape(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _message(item: Any) -> str:
    if item["type"] == "missing":
        return "this member is required"
    if item["type"] == "extra_forbidden":
        return "this member is not known; remove it or check its spelling"
    text = str(item["msg"])
    return text[:1].lower() + text[1:]
