"""Saves a form that was submitted after the session ended, so that its author can submit it again after signing in.

The form is encrypted and travels in the page itself; only the user who wrote it can submit it.
"""

import base64
import binascii
import json
import zlib
from dataclasses import replace

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ConfigInvalid, PolicyDenied
from appliance.core.texts import mark_error

from .routing import ConsoleRequest

FIELD = "kept-form"
LIFETIME_MS = 24 * 3_600_000
EXPIRED = mark_error("this saved form has expired or belongs to another page; open the form and fill it in again")


class SavedByAnotherUser(PolicyDenied):
    """The saved form was written by another user than the one who is signed in now; it stays available to its author."""


def save_form(sealer: Sealer, request: ConsoleRequest, writer: str | None) -> str:
    """The request's form, encrypted for the user who wrote it; a form that was saved before is returned unchanged.

    Empty when the author is unknown, because then anyone who signs in next could submit it.
    """
    if FIELD in request.form:
        return request.field(FIELD)
    if writer is None:
        return ""
    payload = json.dumps([clock.now_ms() + LIFETIME_MS, writer, dict(request.form)]).encode()
    return base64.urlsafe_b64encode(sealer.seal(zlib.compress(payload), _context(request))).decode()


def restore_form(sealer: Sealer, request: ConsoleRequest, user_id: str) -> ConsoleRequest:
    """The request with its saved form filled in, if it carries one.

    PolicyDenied when the saved form is for another page or has expired; OfSomebodyElse when another user wrote it.
    """
    if FIELD not in request.form:
        return request
    try:
        opened = sealer.open(base64.urlsafe_b64decode(request.field(FIELD)), _context(request))
        ends, writer, form = json.loads(zlib.decompress(opened))
    except (ConfigInvalid, binascii.Error, ValueError) as error:  # Includes forms saved by versions that did not record the author.
        raise PolicyDenied(EXPIRED) from error
    if ends < clock.now_ms():
        raise PolicyDenied(EXPIRED)
    if writer != user_id:
        raise SavedByAnotherUser("another user wrote this saved form; open the form and fill it in yourself")
    return replace(request, form=form)


def _context(request: ConsoleRequest) -> str:
    return f"{request.tenant}/kept-form{request.path}"
