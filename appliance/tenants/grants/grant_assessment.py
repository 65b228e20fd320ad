"""Grants for what was published before grants existed: given automatically if the author has the scopes, else owners are asked."""

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from appliance import migrations
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.tenants import people, service
from appliance.tenants.keys import keys
from appliance.tenants.scopes import ALL_SCOPES, scopes_of_role

from . import grants
from .grants import AccessSpec

BATCH_SIZE = 50
RETRY_S = 3600.0
Key = TypeVar("Key", bound=Hashable)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GracePeriods:
    """How long something published before the upgrade may run without an owner's confirmation, in ms: if it exceeds its author's
    scopes, or if its author has left."""

    wider_ms: int
    departed_ms: int


def grace_periods(config: Config) -> GracePeriods:
    """The configured periods."""
    own = config.authority
    return GracePeriods(clock.parse_duration(own.confirm_wider_within), clock.parse_duration(own.confirm_departed_within))


@dataclass(frozen=True)
class PublishedVersion:
    """A published version: its subject, what it may access, and its author and time (epoch ms)."""

    subject: str
    version: int
    access: AccessSpec
    author: str
    at: int


def assess(scope: TenantScope, published: PublishedVersion, grace: GracePeriods) -> int | None:
    """Inside a write: until when (epoch ms) the published version may run; None without limit.

    Access within its author's scopes, or those of the key that published it, is granted automatically, unless an owner withdrew
    or refused it; otherwise the owners are asked.
    """
    subject, access = published.subject, published.access
    if grants.is_granted(scope, subject, access):
        return None
    scopes = scopes_of_author(scope, published.author)
    excess, is_withheld = access.exceeding(scopes or ()), grants.is_blocked(scope, subject, access)
    if scopes is not None and not excess and not is_withheld:
        grants.give_grant(scope, subject, access, by=published.author, at=published.at)
        return None
    since = max(migrations.created_at(), service.get_tenant(scope.tenant_id).created_at)
    until: int = clock.now_ms() if is_withheld else since + (grace.departed_ms if scopes is None else grace.wider_ms)
    details = {"version": published.version, "author": published.author, "why": "departed" if scopes is None else "wider"}
    grants.request_grant(scope, subject, access, excess, until, **details)
    audit.record(scope, "grant.suspended" if until <= clock.now_ms() else "grant.limited", subject, {"until": until, **details})
    return until


def scopes_of_author(scope: TenantScope, author: str) -> frozenset[str] | None:
    """The scopes of an author: a key's as issued, a person's by their current role; None if they have left."""
    kind, _, name = author.partition(":")
    if kind == "system":
        return ALL_SCOPES
    if kind == "user":
        member = people.find_member(scope, name)
        return None if member is None else scopes_of_role(member.role)
    if kind != "key":
        return None
    try:
        return frozenset(keys.get_key(scope, name).scopes)
    except NotFound:
        return None


class Assessor(Generic[Key]):
    """Calls `assess` for the keys that `find` returns, at most `AT_ONCE` per round.

    A failure is logged and retried after `RETRY_S` seconds; the others continue.
    """

    def __init__(self, find: Callable[[], Iterable[Key]], assess: Callable[[Key], object]) -> None:
        self._find = find
        self._assess = assess
        self._again_at: dict[Key, float] = {}

    def assess_some(self) -> int:
        """Assess one round; returns the number of successes."""
        done = 0
        for key in self._find():
            if self._again_at.get(key, 0.0) > clock.monotonic():
                continue
            try:
                self._assess(key)
            except Exception:
                log.exception("the access of %r cannot be assessed; it is retried in an hour", key)
                self._again_at[key] = clock.monotonic() + RETRY_S
                continue
            done += 1
            if done >= BATCH_SIZE:
                break
        return done
