"""Preview links for versions that are not published: signed by the appliance, for one version and a limited time."""

import base64
import hmac
import re
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.webapps import versions
from appliance.webapps.models import VersionRow
from appliance.webapps.routes.authority import require_routes

PARAMETER = "gos_preview"  # of the URL
LASTS_MS = 86_400_000
LONGEST_MS = 30 * LASTS_MS
_TOKEN = re.compile(r"([0-9]{13})\.([A-Za-z0-9_-]{43})", re.ASCII)


@dataclass(frozen=True)
class Preview:
    """A token that opens a version until `expires_at` (ms)."""

    token: str
    expires_at: int

    def at(self, url: str) -> str:
        """The preview link for a version served at `url`."""
        return f"{url}/?{PARAMETER}={self.token}"


def preview_version(scope: TenantScope, sealer: Sealer, app_id: str, number: int, lasts_ms: int = LASTS_MS) -> Preview:
    """A token for this version; Conflict when it is not ready, ValidationFailed when it should last more than 30 days."""
    if not 0 < lasts_ms <= LONGEST_MS:
        raise ValidationFailed("a preview can last at most 30 days", pointer="/expires_in")
    expires_at = clock.now_ms() + lasts_ms

    def create() -> Preview:
        row = versions.get_row(scope, app_id, number)
        if row.state != "ready":
            raise Conflict(Sentence(
                "version %(number)s is %(state)s; only a ready version can be previewed", number=number, state=row.state
            ))
        require_routes(scope, app_id, row.settings)
        audit.record(scope, "webapp.preview", app_id, {"version": number, "expires_at": clock.rfc3339(expires_at)})
        return Preview(_sign(scope, sealer, row, expires_at), expires_at)

    return db.write(create)


def expiry_of(scope: TenantScope, sealer: Sealer, app_id: str, number: int, token: str) -> int | None:
    """When this token expires (ms); None when it is not valid for this version."""
    match = _TOKEN.fullmatch(token)
    if match is None or int(match[1]) <= clock.now_ms():
        return None
    row = scope.find(VersionRow, app_id=app_id, number=number)
    if row is None or row.state != "ready" or not hmac.compare_digest(_sign(scope, sealer, row, int(match[1])), token):
        return None
    return int(match[1])


def _sign(scope: TenantScope, sealer: Sealer, row: VersionRow, expires_at: int) -> str:
    """Includes the creation time, so that the token does not open a recreated app of the same name."""
    message = "\0".join(["webapp preview", scope.tenant_id, row.app_id, str(row.number), str(row.created_at), str(expires_at)])
    return f"{expires_at}.{base64.urlsafe_b64encode(sealer.digest(message.encode())).rstrip(b'=').decode()}"
