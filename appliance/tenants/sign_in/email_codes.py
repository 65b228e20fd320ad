"""Codes that an e-mail brings, with which somebody proves that an address is their own.

A code is good for one door (a WebApp, a share), one host and one browser, once; only keyed digests of codes are stored.

An address gets so many codes an hour at a door.  Anybody may ask for one, so each network has few of them, and some are kept for
networks from which the address has been proven before: who asks for another's address does not use up what its owner needs.
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

from .attempts import MOST_KNOWN

GOOD_MS = 600_000
DIGITS = 8
MOST_TRIES = 5
MOST_PER_ADDRESS, MOST_PER_NETWORK, KEPT_FOR_KNOWN, PER_MS = 18, 5, 6, 3_600_000
KEPT_MS = 3_600_000  # a code that is over still counts among those of its address

_TOO_MANY = "codes were asked for this address within an hour; try again later"

Sending = Literal["sending", "sent", "failed"]


class EmailCodeRow(TenantModel):
    """A code that was asked for, also for an address that gets none: then nothing fits its digest."""

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
class Door:
    """What a code opens: `webapp:<id>` or `share:<id>`, on one of its hosts."""

    scope: TenantScope
    name: str
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


Whose = tuple[str, str, str, str]


class NetworkCounts:
    """How many codes each network has asked for lately, and which networks have proven an address; in memory and bounded."""

    def __init__(self) -> None:
        self._asked: OrderedDict[Whose, list[int]] = OrderedDict()
        self._known: OrderedDict[Whose, None] = OrderedDict()
        self._lock = Lock()

    def count(self, whose: Whose, now: int) -> int:
        """Codes of the last hour."""
        with self._lock:
            return sum(at > now - PER_MS for at in self._asked.get(whose, ()))

    def add(self, whose: Whose, now: int) -> None:
        """Count a code."""
        with self._lock:
            self._asked[whose] = [*self._asked.get(whose, ())[-MOST_PER_NETWORK:], now]
            _bound(self._asked, whose)

    def is_known(self, whose: Whose) -> bool:
        """Whether the address has been proven from this network."""
        with self._lock:
            return whose in self._known

    def remember(self, whose: Whose) -> None:
        """The address has been proven: what was asked from here before does not count any more."""
        with self._lock:
            self._asked.pop(whose, None)
            self._known[whose] = None
            _bound(self._known, whose)


def _bound(kept: OrderedDict[Whose, Any], newest: Whose) -> None:
    kept.move_to_end(newest)
    while len(kept) > MOST_KNOWN:
        kept.popitem(last=False)


class EmailCodes:
    """The codes of every tenant."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._networks = NetworkCounts()

    def ask(self, door: Door, email: str, address: str, *, allowed: bool) -> Asked:
        """A code for this e-mail address, asked for from a network address.  RateLimited, also for one that is not allowed."""
        code_id, code = ids.new("sgn"), "".join(secrets.choice("0123456789") for _ in range(DIGITS))
        digest = self._digest(door, code_id, code if allowed else secrets.token_urlsafe())
        scope, now = door.scope, clock.now_ms()
        whose = (scope.tenant_id, door.name, email, network_of(address))
        most = MOST_PER_ADDRESS if self._networks.is_known(whose) else MOST_PER_ADDRESS - KEPT_FOR_KNOWN
        if self._networks.count(whose, now) >= MOST_PER_NETWORK:
            raise RateLimited(Sentence("%(most_per_network)s %(too_many)s", most_per_network=MOST_PER_NETWORK, too_many=_TOO_MANY))

        def insert() -> None:
            mine = scope.select(EmailCodeRow).where(EmailCodeRow.door == door.name, EmailCodeRow.email == email)
            if mine.where(EmailCodeRow.created_at > now - PER_MS).count() >= most:
                raise RateLimited(Sentence("%(most)s %(too_many)s", most=most, too_many=_TOO_MANY))
            scope.insert(
                EmailCodeRow, id=code_id, door=door.name, email=email, digest=digest, state="sending" if allowed else "none",
                tries=0, created_at=now, expires_at=now + GOOD_MS,
            )  # fmt: skip

        db.write(insert)
        self._networks.add(whose, now)
        return Asked(code_id, code if allowed else "")

    def note_sending(self, scope: TenantScope, code_id: str, state: Sending) -> None:
        """Remember what became of an e-mail."""
        db.write(lambda: scope.update(EmailCodeRow, state=state).where(EmailCodeRow.id == code_id).execute())

    def is_failing(self, door: Door) -> bool:
        """Whether the door's latest e-mail could not be sent; told to everybody alike, whoever it was for."""
        rows = door.scope.select(EmailCodeRow, EmailCodeRow.state).where(
            EmailCodeRow.door == door.name, EmailCodeRow.state.in_(("sent", "failed"))
        )
        latest = rows.order_by(EmailCodeRow.created_at.desc(), EmailCodeRow.id.desc()).first()
        return latest is not None and latest.state == "failed"

    def take(self, door: Door, code_id: str, code: str, address: str) -> Checked:
        """The e-mail address, once, when the code fits; a code is over after ten minutes or five tries."""
        scope, digest = door.scope, self._digest(door, code_id, "".join(code.split()))

        def take() -> Checked:
            row = scope.find(EmailCodeRow, door=door.name, id=code_id)
            if row is None or row.expires_at <= clock.now_ms() or row.tries >= MOST_TRIES:
                return Checked(is_over=True)
            if hmac.compare_digest(bytes(row.digest), digest):
                # It stays, used up: it counts among the codes of this address.
                scope.update(EmailCodeRow, tries=MOST_TRIES).where(EmailCodeRow.id == code_id).execute()
                return Checked(row.email)
            scope.update(EmailCodeRow, tries=row.tries + 1).where(EmailCodeRow.id == code_id).execute()
            return Checked(is_over=row.tries + 1 >= MOST_TRIES)

        checked = db.write(take)
        if checked.email:
            self._networks.remember((scope.tenant_id, door.name, checked.email, network_of(address)))
        return checked

    def _digest(self, door: Door, code_id: str, code: str) -> bytes:
        parts = (door.scope.tenant_id, door.name, door.host, code_id, code)
        return self._sealer.digest(b"e-mail code/" + "\0".join(parts).encode("utf-8", "replace"))


def purge(now: int, most: int = 5000) -> int:
    """Delete codes that no longer count; answers how many."""
    chosen = f"SELECT tenant_id, id FROM email_code WHERE created_at <= ? LIMIT {most}"  # noqa: S608  a number of ours
    deletion = f"DELETE FROM email_code WHERE (tenant_id, id) IN ({chosen})"  # noqa: S608
    return db.write(lambda: db.execute(deletion, (now - KEPT_MS,)))
