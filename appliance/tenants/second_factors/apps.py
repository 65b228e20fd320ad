"""Apps that show codes (RFC 6238): a secret that both sides know, and a code that it gives for each half minute."""

import base64
import hmac
import json
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, ValidationFailed
from appliance.core.texts import mark_error
from appliance.tenants.models import SecondFactorRow

from . import factors
from .problems import ProofExpired

LIFETIME_MS = 30 * 60_000
STEP_SECONDS, DRIFT_STEPS = 30, 1
DIGITS = 6
WRONG = mark_error("this code is not right; check the time of your device, and enter the code that the app shows now")


@dataclass(frozen=True)
class NewApp:
    """The secret of an app that is being added: as text, as an address for the app, and sealed for the form."""

    secret: str
    uri: str
    token: str


def begin(sealer: Sealer, user_id: str, login: str, issuer: str) -> NewApp:
    """A new secret for an app."""
    import pyotp  # loaded when somebody uses an app

    return describe(sealer, user_id, (login, issuer), pyotp.random_base32())


def describe(sealer: Sealer, user_id: str, names: tuple[str, str], secret: str) -> NewApp:
    """The secret with its address; `names` are the login and the issuer that the app shows."""
    import pyotp

    login, issuer = names
    sealed = sealer.seal(json.dumps([secret, clock.now_ms() + LIFETIME_MS]).encode(), _form_context(user_id))
    uri = pyotp.TOTP(secret).provisioning_uri(name=login, issuer_name=issuer)
    return NewApp(secret, uri, base64.urlsafe_b64encode(sealed).decode("ascii"))


def open_token(sealer: Sealer, user_id: str, token: str) -> str:
    """The secret in the form of a new app; ProofExpired."""
    try:
        secret, until = json.loads(sealer.open(base64.urlsafe_b64decode(token), _form_context(user_id)))
    except (ValueError, ConfigInvalid) as error:
        raise ProofExpired("this page has expired; start again") from error
    if until < clock.now_ms():
        raise ProofExpired("this page has expired; start again")
    return str(secret)


def finish(sealer: Sealer, user_id: str, secret: str, name: str, code: str) -> None:
    """Inside a write: store an app that shows this code.  ValidationFailed."""
    step = find_step(secret, code, 0)
    if step is None:
        raise ValidationFailed(WRONG, pointer="/code")
    sealed = sealer.seal(secret.encode(), _stored_context(user_id))
    factors.add_factor(user_id, "totp", name, {"sealed": sealed, "counter": step})


def use_code(sealer: Sealer, user_id: str, code: str) -> bool:
    """Inside a write: whether an app of this account shows the code; it is accepted once, and none of an earlier time after it."""
    is_app = (SecondFactorRow.user_id == user_id) & (SecondFactorRow.kind == "totp")
    for row in SecondFactorRow.select().where(is_app):
        secret = sealer.open(bytes(row.sealed), _stored_context(user_id)).decode()
        step = find_step(secret, code, row.counter)
        if step is not None:
            sql = "UPDATE second_factor SET counter = ?, used_at = ? WHERE id = ? AND counter < ?"
            return db.execute(sql, (step, clock.now_ms(), row.id, step)) == 1
    return False


def find_step(secret: str, code: str, after: int) -> int | None:
    """The time step, later than `after`, to which the code belongs; clocks may differ by half a minute."""
    import pyotp

    app, now = pyotp.TOTP(secret), clock.now_ms() // 1000 // STEP_SECONDS
    for step in range(max(now - DRIFT_STEPS, after + 1), now + DRIFT_STEPS + 1):
        if hmac.compare_digest(app.generate_otp(step).encode(), code.encode("utf-8", "replace")):
            return step
    return None


def draw_qr_code(uri: str) -> str:
    """The address as a picture to scan: SVG in a `data:` address, black on white also in dark mode."""
    import segno  # loaded when somebody adds an app

    return str(segno.make(uri, error="m", micro=False).svg_data_uri(scale=4, border=4, dark="#000", light="#fff"))


def _form_context(user_id: str) -> str:
    return f"new app/{user_id}"


def _stored_context(user_id: str) -> str:
    return f"second factor/{user_id}/totp"
