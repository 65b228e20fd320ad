"""One-time codes sent by e-mail, which prove that someone owns an address.

A code is valid once for one door (a WebApp or a share), one host and one browser; only keyed digests of codes are stored.

The number of codes per hour is limited for each address and door.  Anybody may request one, so each network can request only a
few within an hour of its first, and some are reserved for networks that have proven the address before: requests by others
cannot use up the owner's.
"""

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from peewee import BigIntegerField, BlobField, CompositeKey, IntegerField, TextField

from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.database.db import TenantModel
from appliance.core.errors import RateLimited
from appliance.core.networks import network_of
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from .counts import Count, Counts, MemoryCounts

LIFETIME_MS = 600_000
DIGITS = 8
MAX_TRIES = 5
MAX_PER_ADDRESS, MAX_PER_NETWORK, RESERVED_FOR_PROVEN, WINDOW_MS = 18, 5, 6, 3_600_000
PROVEN_SECONDS = 30 * 86_400.0  # how long a network that has proven an address is remembered
RETENTION_MS = 3_600_000  # how long an expired code counts against its address

Sending = Literal["sending", "sent", "failed"]


class EmailCodeRow(TenantModel):
    """A requested code, including one for an address that is not allowed: nothing matches its digest."""

    label = "code"
    id = TextField()
    door = TextField()
    email = TextField()
    digest = BlobField()
    state = TextField()  # sending | sent | failed | none
    tries = IntegerField()
    created_at = BigIntegerField()
    expires_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("tenant_id", "id")
        table_name = "email_code"


@dataclass(frozen=True)
class CodeTarget:
    """What a code gives access to: `webapp:<id>` or `share:<id>`, on one of its hosts."""

    scope: TenantScope
    name: str
    host: str


@dataclass(frozen=True)
class IssuedCode:
    """A requested code; `code` is empty if it must not be sent, which the response does not reveal."""

    id: str
    code: str


@dataclass(frozen=True)
class CodeCheck:
    """The result of checking a code: the address if it matches; `is_over` if it cannot be tried again."""

    email: str = ""
    is_over: bool = False


class EmailCodes:
    """Creates and checks the codes of every tenant."""

    def __init__(self, sealer: Sealer, open_counts: Callable[[str], Counts] = MemoryCounts) -> None:
        self._sealer = sealer
        self._requests, self._proven = open_counts("code requests"), open_counts("code networks")

    def issue(self, door: CodeTarget, email: str, address: str, *, allowed: bool) -> IssuedCode:
        """Create a code for this e-mail address, requested from a network address.  RateLimited, also if it is not allowed."""
        code_id, code = ids.new("sgn"), "".join(secrets.choice("0123456789") for _ in range(DIGITS))
        digest = self._digest(door, code_id, code if allowed else secrets.token_urlsafe())
        scope, now = door.scope, clock.now_ms()
        requester = (scope.tenant_id, door.name, email, network_of(address))
        self._requests.change((requester,), _count_request)
        is_proven = self._proven.read(requester) is not None
        limit = MAX_PER_ADDRESS if is_proven else MAX_PER_ADDRESS - RESERVED_FOR_PROVEN

        def insert() -> None:
            mine = scope.select(EmailCodeRow).where(EmailCodeRow.door == door.name, EmailCodeRow.email == email)
            if mine.where(EmailCodeRow.created_at > now - WINDOW_MS).count() >= limit:
                raise _build_limit_error(limit)
            scope.insert(
                EmailCodeRow, id=code_id, door=door.name, email=email, digest=digest, state="sending" if allowed else "none",
                tries=0, created_at=now, expires_at=now + LIFETIME_MS,
            )  # fmt: skip

        db.write(insert)
        return IssuedCode(code_id, code if allowed else "")

    def record_sending(self, scope: TenantScope, code_id: str, state: Sending) -> None:
        """Record the result of sending an e-mail."""
        db.write(lambda: scope.update(EmailCodeRow, state=state).where(EmailCodeRow.id == code_id).execute())

    def has_send_failure(self, door: CodeTarget) -> bool:
        """Whether the door's latest e-mail could not be sent; the same for everyone, whoever its recipient was."""
        rows = door.scope.select(EmailCodeRow, EmailCodeRow.state).where(
            EmailCodeRow.door == door.name, EmailCodeRow.state.in_(("sent", "failed"))
        )
        latest = rows.order_by(EmailCodeRow.created_at.desc(), EmailCodeRow.id.desc()).first()
        return latest is not None and latest.state == "failed"

    def check(self, door: CodeTarget, code_id: str, code: str, address: str) -> CodeCheck:
        """Check a code, and return the e-mail address once; a code expires after ten minutes or five attempts."""
        scope, digest = door.scope, self._digest(door, code_id, "".join(code.split()))

        def check() -> CodeCheck:
            row = scope.find(EmailCodeRow, door=door.name, id=code_id)
            if row is None or row.expires_at <= clock.now_ms() or row.tries >= MAX_TRIES:
                return CodeCheck(is_over=True)
            if hmac.compare_digest(bytes(row.digest), digest):
                # The used row stays, because it counts among the codes of this address.
                scope.update(EmailCodeRow, tries=MAX_TRIES).where(EmailCodeRow.id == code_id).execute()
                return CodeCheck(row.email)
            scope.update(EmailCodeRow, tries=row.tries + 1).where(EmailCodeRow.id == code_id).execute()
            return CodeCheck(is_over=row.tries + 1 >= MAX_TRIES)

        checked = db.write(check)
        if checked.email:
            requester = (scope.tenant_id, door.name, checked.email, network_of(address))
            self._requests.change((requester,), _forget)
            self._proven.change((requester,), _remember)
        return checked

    def _digest(self, door: CodeTarget, code_id: str, code: str) -> bytes:
        parts = (door.scope.tenant_id, door.name, door.host, code_id, code)
        return self._sealer.digest(b"e-mail code/" + "\0".join(parts).encode("utf-8", "replace"))


def _count_request(counts: list[Count], now: float) -> None:
    (requests,) = counts
    if requests.used >= MAX_PER_NETWORK:
        raise _build_limit_error(MAX_PER_NETWORK)
    requests.used += 1
    requests.ends = requests.ends or now + WINDOW_MS / 1000


def _forget(counts: list[Count], _now: float) -> None:
    counts[0] = Count()


def _remember(counts: list[Count], now: float) -> None:
    counts[0].ends = now + PROVEN_SECONDS


def _build_limit_error(count: int) -> RateLimited:
    return RateLimited(Sentence("%(count)s codes were requested for this address within an hour; try again later", count=count))


def purge(now: int, most: int = 5000) -> int:
    """Delete codes that no longer count; returns their number."""
    chosen = f"SELECT tenant_id, id FROM email_code WHERE created_at <= ? LIMIT {most}"  # noqa: S608  a constant
    deletion = f"DELETE FROM email_code WHERE (tenant_id, id) IN ({chosen})"  # noqa: S608
    return db.write(lambda: db.execute(deletion, (now - RETENTION_MS,)))
