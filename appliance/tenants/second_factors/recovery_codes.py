"""Recovery codes: ten for an account with a factor, each of which proves once who it is."""

import secrets

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.tenants.models import RecoveryCodeRow
from appliance.tenants.trails import record_everywhere

CODES = 10
GROUPS, GROUP_LENGTH = 6, 4  # 119 bits, too many to be guessed from a copy of the digests and their key
LENGTH = GROUPS * GROUP_LENGTH
_EARLIER_LENGTH = 16  # of codes that an early build issued; they stay valid
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # nothing that looks like something else


def replace_codes(sealer: Sealer, user_id: str) -> list[str]:
    """Replace the codes of an account; returns the new ones, of which only digests are stored."""
    codes = [_make_code() for _ in range(CODES)]
    db.write(lambda: store_codes(sealer, user_id, codes))
    return codes


def make_codes() -> list[str]:
    """New codes, to be stored with `store_codes`."""
    return [_make_code() for _ in range(CODES)]


def _make_code() -> str:
    return "-".join("".join(secrets.choice(_ALPHABET) for _ in range(GROUP_LENGTH)) for _ in range(GROUPS))


def store_codes(sealer: Sealer, user_id: str, codes: list[str]) -> None:
    """Inside a write: make these the codes of an account."""
    RecoveryCodeRow.delete().where(RecoveryCodeRow.user_id == user_id).execute()
    for code in codes:
        RecoveryCodeRow.create(digest=_digest(sealer, user_id, code), user_id=user_id, created_at=clock.now_ms())
    record_everywhere(user_id, "factor.new_recovery_codes", {"codes": len(codes)})


def count_left(user_id: str) -> int:
    """The number of codes that are not used yet."""
    return int(RecoveryCodeRow.select().where(RecoveryCodeRow.user_id == user_id, RecoveryCodeRow.used_at.is_null()).count())


def use_code(sealer: Sealer, user_id: str, code: str) -> bool:
    """Inside a write: whether this is an unused code of the account; it is used then."""
    sql = "UPDATE recovery_code SET used_at = ? WHERE digest = ? AND user_id = ? AND used_at IS NULL"
    if db.execute(sql, (clock.now_ms(), _digest(sealer, user_id, code), user_id)) != 1:
        return False
    record_everywhere(user_id, "factor.use_recovery_code", {"left": count_left(user_id)})
    return True


def is_recovery_code(text: str) -> bool:
    """Whether the text has the form of a recovery code rather than of an app's code."""
    return len(_plain(text)) in (LENGTH, _EARLIER_LENGTH)


def _plain(code: str) -> str:
    return "".join(each for each in code.lower() if each.isalnum())


def _digest(sealer: Sealer, user_id: str, code: str) -> bytes:
    return sealer.digest(f"recovery code/{user_id}/{_plain(code)}".encode("utf-8", "replace"))
