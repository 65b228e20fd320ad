"""Recovery codes on the page that shows them once, and as the file that this page offers."""

import base64
import json
from collections.abc import Sequence

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ConfigInvalid, Gone
from appliance.core.texts import gettext as _
from appliance.core.texts import mark_error
from appliance.tenants import SignedIn
from appliance.web import Services

from .routing import Download

LIFETIME_MS = 30 * 60_000
FILE = "gos-recovery-codes.txt"
OVER = mark_error("the codes were shown too long ago; get new ones in your account")


def seal_codes(sealer: Sealer, user_id: str, codes: Sequence[str]) -> str:
    """The codes for the form that downloads them, as they are stored nowhere."""
    text = json.dumps([list(codes), clock.now_ms() + LIFETIME_MS]).encode()
    return base64.urlsafe_b64encode(sealer.seal(text, _context(user_id))).decode("ascii")


def make_file(services: Services, person: SignedIn, sealed: str) -> Download:
    """The codes as a text file; Gone if they were shown too long ago, or to somebody else."""
    try:
        codes, until = json.loads(services.sealer.open(base64.urlsafe_b64decode(sealed), _context(person.user_id)))
    except (ValueError, ConfigInvalid) as error:
        raise Gone(OVER) from error
    if until < clock.now_ms():
        raise Gone(OVER)
    head = _("Recovery codes of %(login)s on %(host)s. Each works once.", login=person.login, host=services.config.domains.base)
    return Download(FILE, "\n".join([head, "", *codes, ""]).encode(), "text/plain; charset=utf-8")


def _context(user_id: str) -> str:
    return f"recovery-codes/{user_id}"
