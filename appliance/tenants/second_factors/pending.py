"""A sign-in whose password was right, sealed in a cookie until the second factor is proven as well."""

import base64
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.errors import ConfigInvalid
from appliance.tenants.models import Person

LIFETIME_MS = 600_000
_CONTEXT = "console sign-in with a second factor"


@dataclass(frozen=True)
class PendingFactor:
    """Whose password was right, and where they continue; `password` is a digest that changes with the password."""

    user_id: str
    login: str
    password: str
    onward: Mapping[str, str]
    until: int


def seal_pending(sealer: Sealer, person: Person, onward: Mapping[str, str]) -> str:
    """The value of the cookie for somebody whose password was checked."""
    digest = _digest(sealer, person.password_hash)
    pending = PendingFactor(person.id, person.login, digest, dict(onward), clock.now_ms() + LIFETIME_MS)
    return base64.urlsafe_b64encode(sealer.seal(json.dumps(asdict(pending)).encode(), _CONTEXT)).decode("ascii")


def open_pending(sealer: Sealer, cookie: str) -> PendingFactor | None:
    """The sign-in of this cookie; None if it has expired or is forged."""
    try:
        pending = PendingFactor(**json.loads(sealer.open(base64.urlsafe_b64decode(cookie), _CONTEXT)))
    except (ValueError, ConfigInvalid):
        return None
    return pending if pending.until > clock.now_ms() else None


def find_checked(sealer: Sealer, pending: PendingFactor) -> Person | None:
    """The person whose password was right, unless it has been replaced since or the account was deleted."""
    person: Person | None = Person.get_or_none(Person.id == pending.user_id)
    if person is None or not hmac.compare_digest(_digest(sealer, person.password_hash), pending.password):
        return None
    return person


def _digest(sealer: Sealer, password_hash: str) -> str:
    return sealer.digest(f"password of a sign-in/{password_hash}".encode()).hex()
