"""What proves once who a visitor is: the code that an e-mail brings, and the one that the base host gives a member.

A code is good for one app, one host and one browser, once; only keyed digests of codes are stored.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from appliance.core import clock, db, ids
from appliance.core.crypto import Sealer
from appliance.core.errors import RateLimited
from appliance.core.scope import TenantScope

from .models import SignInRow, WebAppRow

MEMBER_MS = 60_000
EMAIL_MS = 600_000
EMAIL_DIGITS = 8
MOST_TRIES = 5
MOST_PER_ADDRESS, PER_MS = 6, 3_600_000

Sending = Literal["sending", "sent", "failed"]


@dataclass(frozen=True)
class Place:
    """Where a code is good: an app on one of its hosts."""

    scope: TenantScope
    app: str
    host: str


@dataclass(frozen=True)
class Asked:
    """A code that was asked for by e-mail; `code` is empty when it must not be sent, which nobody may tell from outside."""

    id: str
    code: str


@dataclass(frozen=True)
class Checked:
    """What became of a code: the address when it fits; `is_over` when it cannot be tried again."""

    email: str = ""
    is_over: bool = False


class SignIns:
    """The codes of every tenant."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    # -- members

    def give_member_code(self, place: Place, state: str, user_id: str) -> str:
        """A code with which the browser that holds `state` gets in within a minute; NotFound for the app."""
        code = secrets.token_urlsafe(32)
        row = {"kind": "member", "subject": user_id, "digest": self._digest(place, state, code), "state": "given"}
        db.write(lambda: _insert(place, ids.new("sgn"), row, MEMBER_MS))
        return code

    def take_member_code(self, place: Place, state: str, code: str) -> str | None:
        """The user behind a code, once; None when it is wrong, another place's or browser's, used or too old."""
        scope, digest = place.scope, self._digest(place, state, code)

        def take() -> str | None:
            row = scope.find(SignInRow, app_id=place.app, kind="member", digest=digest)
            if row is None:
                return None
            scope.delete(SignInRow).where(SignInRow.id == row.id).execute()
            return str(row.subject) if row.expires_at > clock.now_ms() else None

        return db.write(take)

    # -- e-mail

    def ask_email_code(self, place: Place, email: str, *, allowed: bool) -> Asked:
        """A code for this address.  RateLimited, for an address that is allowed as for any other."""
        sign_in, code = ids.new("sgn"), "".join(secrets.choice("0123456789") for _ in range(EMAIL_DIGITS))
        row = {
            "kind": "email", "subject": email, "digest": self._digest(place, sign_in, code if allowed else secrets.token_urlsafe()),
            "state": "sending" if allowed else "none",
        }  # fmt: skip

        def insert() -> None:
            since = clock.now_ms() - PER_MS
            mine = (SignInRow.app_id == place.app, SignInRow.kind == "email", SignInRow.subject == email)
            if place.scope.select(SignInRow).where(*mine, SignInRow.created_at > since).count() >= MOST_PER_ADDRESS:
                raise RateLimited(f"{MOST_PER_ADDRESS} codes were asked for this address within an hour; try again later")
            _insert(place, sign_in, row, EMAIL_MS)

        db.write(insert)
        return Asked(sign_in, code if allowed else "")

    def note_sending(self, scope: TenantScope, sign_in: str, state: Sending) -> None:
        """Remember what became of an e-mail."""
        db.write(lambda: scope.update(SignInRow, state=state).where(SignInRow.id == sign_in).execute())

    def is_failing(self, scope: TenantScope, app_id: str) -> bool:
        """Whether the app's latest e-mail could not be sent; told to everybody alike, whoever it was for."""
        rows = scope.select(SignInRow, SignInRow.state).where(SignInRow.app_id == app_id, SignInRow.state.in_(("sent", "failed")))
        latest = rows.order_by(SignInRow.created_at.desc(), SignInRow.id.desc()).first()
        return latest is not None and latest.state == "failed"

    def take_email_code(self, place: Place, sign_in: str, code: str) -> Checked:
        """The address, once, when the code fits; a code is over after ten minutes or five tries."""
        scope, digest = place.scope, self._digest(place, sign_in, "".join(code.split()))

        def take() -> Checked:
            row = scope.find(SignInRow, app_id=place.app, kind="email", id=sign_in)
            if row is None or row.expires_at <= clock.now_ms() or row.tries >= MOST_TRIES:
                return Checked(is_over=True)
            if hmac.compare_digest(bytes(row.digest), digest):
                # It stays, used up: it counts among the codes of this address.
                scope.update(SignInRow, tries=MOST_TRIES).where(SignInRow.id == sign_in).execute()
                return Checked(row.subject)
            scope.update(SignInRow, tries=row.tries + 1).where(SignInRow.id == sign_in).execute()
            return Checked(is_over=row.tries + 1 >= MOST_TRIES)

        return db.write(take)

    def _digest(self, place: Place, binding: str, code: str) -> bytes:
        parts = (place.scope.tenant_id, place.app, place.host, binding, code)
        return self._sealer.digest(b"sign-in/" + "\0".join(parts).encode("utf-8", "replace"))


def _insert(place: Place, sign_in: str, row: Mapping[str, object], lifetime_ms: int) -> None:
    place.scope.get(WebAppRow, id=place.app)
    now = clock.now_ms()
    place.scope.insert(SignInRow, id=sign_in, app_id=place.app, tries=0, created_at=now, expires_at=now + lifetime_ms, **row)
