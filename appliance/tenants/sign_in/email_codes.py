"""One-time codes sent by e-mail, which prove that someone owns an address.

A code is valid once for one door (a WebApp or a share), one host and one browser; only keyed digests of codes are stored.

The number of codes per hour is limited for each address and door.  Anybody may request one, so each network can request only a
few, and some are reserved for networks that have proven the address before: requests by others cannot use up the owner's.
"""

import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

from peewee import BigIntegerField, BlobField, CompositeKey, IntegerField, TextField

from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.database.db import TenantModel
from appliance.core.errors import RateLimited
from appliance.core.networks import network_of
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from .counts import MAX_TRACKED

LIFETIME_MS = 600_000
DIGITS = 8
MAX_TRIES = 5
MAX_PER_ADDRESS, MAX_PER_NETWORK, RESERVED_FOR_PROVEN, WINDOW_MS = 18, 5, 6, 3_600_000
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


Requester = tuple[str, str, str, str]


class NetworkCounts:
    """Counts the codes each network has requested lately, and the networks that have proven an address; in memory, bounded."""

    def __init__(self) -> None:
        self._requests: OrderedDict[Requester, list[int]] = OrderedDict()
        self._proven: OrderedDict[Requester, None] = OrderedDict()
        self._lock = Lock()

    def count(self, requester: Requester, now: int) -> int:
        """The number of codes requested in the last hour."""
        with self._lock:
            return sum(at > now - WINDOW_MS for at in self._requests.get(requester, ()))

    def add(self, requester: Requester, now: int) -> None:
        """Count a requested code."""
        with self._lock:
            self._requests[requester] = [*self._requests.get(requester, ())[-MAX_PER_NETWORK:], now]
            _evict_oldest(self._requests, requester)

    def has_proven(self, requester: Requester) -> bool:
        """Whether the address has been proven from this network."""
        with self._lock:
            return requester in self._proven

    def remember(self, requester: Requester) -> None:
        """Record that the address has been proven from this network, and reset its count."""
        with self._lock:
            self._requests.pop(requester, None)
            self._proven[requester] = None
            _evict_oldest(self._proven, requester)


def _evict_oldest(entries: OrderedDict[Requester, Any], newest: Requester) -> None:
    entries.move_to_end(newest)
    while len(entries) > MAX_TRACKED:
        entries.popitem(last=False)


class EmailCodes:
    """Creates and checks the codes of every tenant."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._networks = NetworkCounts()

    def issue(self, door: CodeTarget, email: str, address: str, *, allowed: bool) -> IssuedCode:
        """Create a code for this e-mail address, requested from a network address.  RateLimited, also if it is not allowed."""
        code_id, code = ids.new("sgn"), "".join(secrets.choice("0123456789") for _ in range(DIGITS))
        digest = self._digest(door, code_id, code if allowed else secrets.token_urlsafe())
        scope, now = door.scope, clock.now_ms()
        requester = (scope.tenant_id, door.name, email, network_of(address))
        limit = MAX_PER_ADDRESS if self._networks.has_proven(requester) else MAX_PER_ADDRESS - RESERVED_FOR_PROVEN
        if self._networks.count(requester, now) >= MAX_PER_NETWORK:
            raise _build_limit_error(MAX_PER_NETWORK)

        def insert() -> None:
            mine = scope.select(EmailCodeRow).where(EmailCodeRow.door == door.name, EmailCodeRow.email == email)
            if mine.where(EmailCodeRow.created_at > now - WINDOW_MS).count() >= limit:
                raise _build_limit_error(limit)
            scope.insert(
                EmailCodeRow, id=code_id, door=door.name, email=email, digest=digest, state="sending" if allowed else "none",
                tries=0, created_at=now, expires_at=now + LIFETIME_MS,
            )  # fmt: skip

        db.write(insert)
        self._networks.add(requester, now)
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
            self._networks.remember((scope.tenant_id, door.name, checked.email, network_of(address)))
        return checked

    def _digest(self, door: CodeTarget, code_id: str, code: str) -> bytes:
        parts = (door.scope.tenant_id, door.name, door.host, code_id, code)
        return self._sealer.digest(b"e-mail code/" + "\0".join(parts).encode("utf-8", "replace"))


def _build_limit_error(count: int) -> RateLimited:
    return RateLimited(Sentence("%(count)s codes were requested for this address within an hour; try again later", count=count))


def purge(now: int, most: int = 5000) -> int:
    """Delete codes that no longer count; returns their number."""
    chosen = f"SELECT tenant_id, id FROM email_code WHERE created_at <= ? LIMIT {most}"  # noqa: S608  a constant
    deletion = f"DELETE FROM email_code WHERE (tenant_id, id) IN ({chosen})"  # noqa: S608
    return db.write(lambda: db.execute(deletion, (now - RETENTION_MS,)))
