"""What was published before grants were recorded: granted silently where its author may do it, else the owners are asked."""

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import people, service
from appliance.tenants.keys import keys
from appliance.tenants.scopes import ALL, scopes_of_role

from . import grants
from .grants import Reach

MIGRATION = "grants"
AT_ONCE = 50
AGAIN_S = 3600.0
Key = TypeVar("Key", bound=Hashable)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Grace:
    """How long what was published before the upgrade goes on without an owner's confirmation, in ms: what is wider than its
    author, what its author has left behind."""

    wider_ms: int
    departed_ms: int


def grace_of(config: Config) -> Grace:
    """As it is configured."""
    own = config.authority
    return Grace(clock.parse_duration(own.confirm_wider_within), clock.parse_duration(own.confirm_departed_within))


@dataclass(frozen=True)
class Published:
    """A published version: whose it is, what it reaches, and who published it when (epoch ms)."""

    subject: str
    version: int
    reach: Reach
    author: str
    at: int


def assess(scope: TenantScope, published: Published, grace: Grace) -> int | None:
    """Inside a write: until when (epoch ms) it may go on, None for good.

    What its author holds, or held with the key that published, is granted silently, unless an owner has withdrawn or refused it;
    else the owners are asked.
    """
    subject, reach = published.subject, published.reach
    if grants.is_granted(scope, subject, reach):
        return None
    held = scopes_of_author(scope, published.author)
    excess, is_withheld = reach.beyond(held or ()), grants.is_withheld(scope, subject, reach)
    if held is not None and not excess and not is_withheld:
        grants.give_grant(scope, subject, reach, by=published.author, at=published.at)
        return None
    since = max(_upgraded_at(), service.get_tenant(scope.tenant_id).created_at)
    until: int = clock.now_ms() if is_withheld else since + (grace.departed_ms if held is None else grace.wider_ms)
    details = {"version": published.version, "author": published.author, "why": "departed" if held is None else "wider"}
    grants.ask_for_grant(scope, subject, reach, excess, until, **details)
    audit.record(scope, "grant.suspended" if until <= clock.now_ms() else "grant.limited", subject, {"until": until, **details})
    return until


def scopes_of_author(scope: TenantScope, author: str) -> frozenset[str] | None:
    """What whoever published may do: a key as it was issued, a person in their role of today; None when they have left."""
    kind, _, name = author.partition(":")
    if kind == "system":
        return ALL
    if kind == "user":
        member = people.find_member(scope, name)
        return None if member is None else scopes_of_role(member.role)
    if kind != "key":
        return None
    try:
        return frozenset(keys.get_key(scope, name).scopes)
    except NotFound:
        return None


def _upgraded_at() -> int:
    """When this appliance began to record grants."""
    ((at,),) = db.rows("SELECT applied_at FROM migration WHERE name = ?", (MIGRATION,))
    return int(at)


class Assessor(Generic[Key]):
    """Calls `assess` for what `find` names, `AT_ONCE` at a time.

    What cannot be assessed is logged, and tried again `AGAIN_S` seconds later; the others go on.
    """

    def __init__(self, find: Callable[[], Iterable[Key]], assess: Callable[[Key], object]) -> None:
        self._find = find
        self._assess = assess
        self._again_at: dict[Key, float] = {}

    def assess_some(self) -> int:
        """Answers how many were assessed."""
        done = 0
        for key in self._find():
            if self._again_at.get(key, 0.0) > clock.monotonic():
                continue
            try:
                self._assess(key)
            except Exception:
                log.exception("what %r reaches cannot be assessed; the others go on, and this is tried again in an hour", key)
                self._again_at[key] = clock.monotonic() + AGAIN_S
                continue
            done += 1
            if done >= AT_ONCE:
                break
        return done
