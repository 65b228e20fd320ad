"""Renders errors: the envelope of docs/contract.md § 3, or RFC 9457 when the caller accepts it."""

import json
import logging
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import peewee

from appliance.core.database.losses import ConnectionLost
from appliance.core.errors import ApplianceError, ValidationFailed, http_status
from appliance.core.texts import ENGLISH, Language, mark, mark_error

from .asgi import Send
from .refusal_pages import PAGE_POLICY, TITLE, refusal_page
from .responses import Response

log = logging.getLogger(__name__)

INTERNAL = mark_error("something went wrong in the appliance; tell its operator the request id, the log has the rest")
PROBLEM = "application/problem+json"
UNAVAILABLE, TRY_AGAIN, BACK = mark("Not available at the moment"), mark("Try again"), mark("Back to the app")
VARY = {"Vary": "Accept-Language"}
"""The headers of a response in the reader's language."""


@dataclass(frozen=True)
class Reader:
    """Who reads a refusal, in which language: a person on a page of their browser, or the script of a page.

    The page leads to `home`; to the same address if there is no home, or if the request can be repeated and may succeed then.
    """

    language: Language
    has_page: bool = False
    home: str = ""
    is_repeatable: bool = True

    def link(self, status: int) -> tuple[str, str]:
        """The address and text of the link on a page with this status."""
        may_succeed = status in (HTTPStatus.MISDIRECTED_REQUEST, HTTPStatus.TOO_MANY_REQUESTS) or status >= 500
        is_here = not self.home or (self.is_repeatable and may_succeed)
        return ("" if is_here else self.home), self.language.catalogue.gettext(TRY_AGAIN if is_here else BACK)


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


def error_response(error: BaseException, request_id: str, accept: str = "", *, visitor: Language | None = None) -> Response:
    """The response for an error; `accept` is the request's Accept header.

    Programs read it in English.  Visitors of content hosts read it in their language, and do not see `extra`, which is about the
    tenant's own setup.
    """
    error = as_coded(error)
    status, extra = http_status(error), {} if visitor is not None else error.extra
    translate = str if visitor is None else visitor.translate
    details = [{"pointer": each.pointer, "code": each.code, "message": translate(each.message)} for each in error.details]
    message = translate(error.message)
    if PROBLEM in accept:
        problem = {
            "type": f"urn:gos:error:{error.code}", "title": error.code.replace("_", " "), "status": status,
            "detail": message, "instance": f"urn:gos:request:{request_id}", "code": error.code,
            "request_id": request_id, "errors": details, **extra,
        }  # fmt: skip
        return Response(status, _dump(problem), {**error.headers, "Content-Type": PROBLEM})
    body = {"code": error.code, "message": message, "status": status, "request_id": request_id, "details": details, **extra}
    return Response(status, _dump({"success": False, "error": body}), {**error.headers, "Content-Type": "application/json"})


async def refuse(send: Send, error: ApplianceError, request_id: str, reader: Reader | None = None) -> None:
    """Send an error to a visitor; without a reader to a program, in English."""
    response = error_response(error, request_id, visitor=ENGLISH if reader is None else reader.language)
    if reader is not None:
        response = replace(response, headers={**response.headers, **VARY})
        if reader.has_page:
            headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": PAGE_POLICY}
            response = replace(response, body=_page(error, request_id, reader), headers={**response.headers, **headers})
    await Response(response.status, response.body, {"Cache-Control": "no-store", **response.headers}).send(send)


def _page(error: ApplianceError, request_id: str, reader: Reader) -> bytes:
    status, language = http_status(error), reader.language
    title = UNAVAILABLE if status == HTTPStatus.SERVICE_UNAVAILABLE else TITLE
    return refusal_page([language.translate(error.message)], request_id, reader.link(status), title=title, language=language)


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf8", "replace")
