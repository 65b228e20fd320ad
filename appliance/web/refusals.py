"""Renders errors: the envelope of docs/contract.md § 3, or RFC 9457 when the caller accepts it."""

import json
import logging
from http import HTTPStatus
from typing import Any

import peewee

from appliance.core.database.losses import ConnectionLost
from appliance.core.errors import ApplianceError, ValidationFailed, http_status
from appliance.core.texts import Language, mark, mark_error

from .asgi import Send
from .refusal_pages import PAGE_POLICY, TITLE, refusal_page
from .responses import Response

log = logging.getLogger(__name__)

INTERNAL = mark_error("something went wrong in the appliance; tell its operator the request id, the log has the rest")
PROBLEM = "application/problem+json"
UNAVAILABLE, TRY_AGAIN = mark("Not available at the moment"), mark("Try again")


def as_coded(error: BaseException, message: str = "unhandled error") -> ApplianceError:
    """The error itself, if it has a code.  A lost connection to the database is logged in a line, any other exception in full: it
    becomes `internal`.  PostgreSQL refuses a NUL in any text, wherever the caller has put it."""
    if isinstance(error, ApplianceError):
        return error
    if isinstance(error, peewee.DataError) and "cannot contain NUL" in str(error):
        return ValidationFailed("a text contains a NUL character (U+0000), which is not allowed; remove it")
    if isinstance(error, ConnectionLost):
        log.warning("%s: %s", message, error)
        return error.coded()
    log.error("%s", message, exc_info=error)
    return ApplianceError(INTERNAL)


def error_response(error: BaseException, request_id: str, accept: str = "", *, for_visitor: bool = False) -> Response:
    """The response for an error; `accept` is the request's Accept header.

    Visitors of content hosts do not see `extra`, which is about the tenant's own setup.
    """
    error = as_coded(error)
    status, extra = http_status(error), {} if for_visitor else error.extra
    details = [{"pointer": each.pointer, "code": each.code, "message": each.message} for each in error.details]
    if PROBLEM in accept:
        problem = {
            "type": f"urn:gos:error:{error.code}", "title": error.code.replace("_", " "), "status": status,
            "detail": error.message, "instance": f"urn:gos:request:{request_id}", "code": error.code,
            "request_id": request_id, "errors": details, **extra,
        }  # fmt: skip
        return Response(status, _dump(problem), {**error.headers, "Content-Type": PROBLEM})
    body = {"code": error.code, "message": error.message, "status": status, "request_id": request_id, "details": details, **extra}
    return Response(status, _dump({"success": False, "error": body}), {**error.headers, "Content-Type": "application/json"})


async def refuse(send: Send, error: ApplianceError, request_id: str, *, page_in: Language | None = None) -> None:
    """Send an error to a visitor, or a page in this language that says the same to a person in a browser."""
    response = error_response(error, request_id, for_visitor=True)
    if page_in is not None:
        title = UNAVAILABLE if response.status == HTTPStatus.SERVICE_UNAVAILABLE else TITLE
        link = ("", page_in.catalogue.gettext(TRY_AGAIN))
        page = refusal_page([page_in.translate(error.message)], request_id, link, title=title, language=page_in)
        headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": PAGE_POLICY}
        response = Response(response.status, page, {**response.headers, **headers})
    await Response(response.status, response.body, {"Cache-Control": "no-store", **response.headers}).send(send)


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf8", "replace")
