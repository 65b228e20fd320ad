"""A sign-in that has been sent to a provider, sealed in a cookie until the browser comes back."""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ConfigInvalid

LIFETIME_MS = 600_000


@dataclass(frozen=True)
class PendingSignIn:
    """What binds a provider's response to the browser and the request; `onward` says where to continue."""

    provider: str
    state: str
    nonce: str
    verifier: str
    onward: Mapping[str, str]
    until: int

    def seal(self, sealer: Sealer) -> str:
        """The value of the cookie, which is valid for this provider only."""
        sealed = sealer.seal(json.dumps(asdict(self)).encode(), _context(self.provider))
        return base64.urlsafe_b64encode(sealed).decode("ascii")


def open_pending(sealer: Sealer, cookie: str, provider: str) -> PendingSignIn | None:
    """The sign-in of this cookie; None if it is of another provider, expired or forged."""
    try:
        sealed = base64.urlsafe_b64decode(cookie)
        pending = PendingSignIn(**json.loads(sealer.open(sealed, _context(provider))))
    except (ValueError, ConfigInvalid):
        return None
    return pending if pending.until > clock.now_ms() else None


def _context(provider: str) -> str:
    return f"console sign-in/{provider}"
