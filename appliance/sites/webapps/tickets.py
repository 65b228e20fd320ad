"""Tickets with which a browser follows its execution, and no other browser can."""

import base64
import binascii
import json
import re
import secrets

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ConfigInvalid, NotFound
from appliance.core.scope import TenantScope
from appliance.webapps.access import Visitor

LIFETIME_MS = 24 * 3_600_000
COOKIE = "__Host-gos_browser"
_COOKIE = re.compile(rf"(?:^|;)\s*{COOKIE}=([A-Za-z0-9_-]{{32}})\s*(?=;|$)")
_TICKET = re.compile(r"[A-Za-z0-9_-]{40,400}")


def new_browser() -> str:
    """A random name for a browser without one."""
    return secrets.token_urlsafe(24)


def browser_of(cookie: str) -> str:
    """The name in a Cookie header; empty when there is none, or more than one."""
    names = set(_COOKIE.findall(cookie))
    return names.pop() if len(names) == 1 else ""


def browser_cookie(name: str) -> str:
    return f"{COOKIE}={name}; Path=/; Max-Age={LIFETIME_MS // 1000}; HttpOnly; Secure; SameSite=Lax"


def holder_of(visitor: Visitor, browser: str) -> str:
    """Whom a ticket belongs to: a session, or a browser without one; empty when neither is known."""
    if visitor.session:
        return f"session {visitor.kind} {visitor.id} {visitor.session}"
    return f"browser {browser}" if browser else ""


class Tickets:
    """Issues and opens tickets, which are sealed and bound to the app and the holder."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def issue(self, tenant: TenantScope, app: str, holder: str, execution_id: str) -> str:
        """A ticket for the holder, valid for LIFETIME_MS."""
        payload = json.dumps([execution_id, clock.now_ms() + LIFETIME_MS]).encode()
        return base64.urlsafe_b64encode(self._sealer.seal(payload, _context(tenant, app, holder))).rstrip(b"=").decode()

    def open(self, tenant: TenantScope, app: str, holder: str, ticket: str) -> str:
        """The id of the execution; NotFound for invalid, expired and foreign tickets."""
        try:
            if not holder or not _TICKET.fullmatch(ticket):
                raise NotFound("")
            sealed = base64.urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4))
            execution_id, expires_at = json.loads(self._sealer.open(sealed, _context(tenant, app, holder)))
            if clock.now_ms() >= expires_at:
                raise NotFound("")
        except (NotFound, ConfigInvalid, binascii.Error) as error:
            raise NotFound("this execution cannot be followed; call the route again") from error
        return str(execution_id)


def _context(tenant: TenantScope, app: str, holder: str) -> str:
    return f"route ticket/{tenant.tenant_id}/{app}/{holder}"
