"""Remembers browsers that have signed in: a cookie that grants nothing, but gives their sign-ins a separate attempt limit."""

import hmac
import secrets

from appliance.core import clock
from appliance.core.crypto import Sealer

RETENTION_DAYS = 180
MAX_LOGINS = 5  # per browser
_DAY_MS = 86_400_000


def find_device(sealer: Sealer, cookie: str, login: str) -> str:
    """The id of this browser if its cookie proves an earlier sign-in with this login; empty otherwise."""
    for part in cookie.split("~")[:MAX_LOGINS]:
        device, _, rest = part.partition(".")
        until, _, seal = rest.partition(".")
        if not hmac.compare_digest(seal.encode(), _seal_of(sealer, device, until, login).encode()):
            continue
        if int(until) * _DAY_MS > clock.now_ms():
            return device
    return ""


def remember_device(sealer: Sealer, cookie: str, login: str) -> str:
    """The cookie of a browser that has just signed in with this login, including its earlier logins."""
    device, until = secrets.token_urlsafe(12), str(clock.now_ms() // _DAY_MS + RETENTION_DAYS)
    own = f"{device}.{until}.{_seal_of(sealer, device, until, login)}"
    others = [part for part in cookie.split("~") if part and not find_device(sealer, part, login)]
    return "~".join([own, *others][:MAX_LOGINS])


def _seal_of(sealer: Sealer, device: str, until: str, login: str) -> str:
    return sealer.digest(f"device of a sign-in/{device}/{until}/{login}".encode("utf-8", "replace")).hex()[:32]
