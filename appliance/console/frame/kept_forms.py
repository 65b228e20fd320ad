"""A form of somebody who was signed out meanwhile: sealed in a page that sends it again, as whoever wrote it and nobody else."""

import base64
import binascii
import json
import zlib
from dataclasses import replace

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ConfigInvalid, PolicyDenied
from appliance.core.texts import mark_error

from .routing import Asked

FIELD = "kept-form"
LIFETIME_MS = 24 * 3_600_000
OVER = mark_error("what this page kept is a day old or of another page; open the form again and write it anew")


class OfSomebodyElse(PolicyDenied):
    """What was kept was written by another person than the one who is signed in now; it stays for them."""


def keep(sealer: Sealer, asked: Asked, writer: str | None) -> str:
    """The form of this request, for the user who wrote it; one that was kept already stays as it is.  Empty when nobody knows
    who wrote it: it could only be sent by whoever comes next."""
    if FIELD in asked.form:
        return asked.field(FIELD)
    if writer is None:
        return ""
    told = json.dumps([clock.now_ms() + LIFETIME_MS, writer, dict(asked.form)]).encode()
    return base64.urlsafe_b64encode(sealer.seal(zlib.compress(told), _context(asked))).decode()


def take_out(sealer: Sealer, asked: Asked, user_id: str) -> Asked:
    """The request with the form that was kept for it, if there is one; PolicyDenied when it is not for this page, or too old,
    OfSomebodyElse when this user has not written it."""
    if FIELD not in asked.form:
        return asked
    try:
        opened = sealer.open(base64.urlsafe_b64decode(asked.field(FIELD)), _context(asked))
        ends, writer, form = json.loads(zlib.decompress(opened))
    except (ConfigInvalid, binascii.Error, ValueError) as error:  # also what was kept before it told who wrote it
        raise PolicyDenied(OVER) from error
    if ends < clock.now_ms():
        raise PolicyDenied(OVER)
    if writer != user_id:
        raise OfSomebodyElse("somebody else wrote what this page kept; open the form again and write your own")
    return replace(asked, form=form)


def _context(asked: Asked) -> str:
    return f"{asked.tenant}/kept-form{asked.path}"
