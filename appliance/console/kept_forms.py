"""A form of somebody who was signed out meanwhile: sealed in a page that sends it again, so that nobody reads it there."""

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


def keep(sealer: Sealer, asked: Asked) -> str:
    """The form of this request; one that was kept already stays as it is."""
    if FIELD in asked.form:
        return asked.field(FIELD)
    told = json.dumps([clock.now_ms() + LIFETIME_MS, dict(asked.form)]).encode()
    return base64.urlsafe_b64encode(sealer.seal(zlib.compress(told), _context(asked))).decode()


def take_out(sealer: Sealer, asked: Asked) -> Asked:
    """The request with the form that was kept for it, if there is one; PolicyDenied when it is not for this page, or too old."""
    if FIELD not in asked.form:
        return asked
    try:
        opened = sealer.open(base64.urlsafe_b64decode(asked.field(FIELD)), _context(asked))
    except (ConfigInvalid, binascii.Error, ValueError) as error:
        raise PolicyDenied(OVER) from error
    ends, form = json.loads(zlib.decompress(opened))
    if ends < clock.now_ms():
        raise PolicyDenied(OVER)
    return replace(asked, form=form)


def _context(asked: Asked) -> str:
    return f"{asked.tenant}/kept-form{asked.path}"
