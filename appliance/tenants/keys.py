"""API keys: their text, issue, rotation, revocation, authentication and rate limit."""

import ipaddress
import secrets
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.core import clock, db, ids
from appliance.core.crypto import Sealer
from appliance.core.errors import (
    AddressNotAllowed,
    Conflict,
    ExpiredApiKey,
    InvalidApiKey,
    NotFound,
    RateLimited,
    RevokedApiKey,
    ScopeMissing,
    ValidationFailed,
)
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .models import ApiKey
from .scopes import check_scopes

# The row that the verbs below answer; whoever shows it takes it from here.
__all__ = ["ApiKey"]

DAY = 86_400_000
CACHE_MS = 500
LAST_USED_MS = 60_000


def make_key_text(environment: str) -> str:
    """`gos_<env>_<30 base62><6 base62 CRC-32 of what precedes>`."""
    body = f"gos_{environment}_{''.join(secrets.choice(ids.ALPHABET) for _ in range(30))}"
    return body + ids.base62(zlib.crc32(body.encode()), 6)


def is_key_text(text: str) -> bool:
    """Whether the text has the form of a key and its check digits fit."""
    body, check = text[:-6], text[-6:]
    return text.startswith("gos_") and len(text) >= 42 and ids.base62(zlib.crc32(body.encode()), 6) == check


@dataclass(frozen=True)
class KeySpec:
    """What a new key shall be; None means the default of CONTRACT § 4."""

    name: str
    scopes: Sequence[str]
    environment: str = "live"
    expires_in_days: int = 365
    rate_requests: int = 600
    rate_window_s: int = 60
    allowed_ips: Sequence[str] = ()


def issue_key(scope: TenantScope, sealer: Sealer, spec: KeySpec, *, lifetime_ms: int | None = None) -> tuple[ApiKey, str]:
    """A new key and, this once, its text.  Never wider than the issuer's own scopes."""
    wanted = check_scopes(spec.scopes)
    _refuse_wider(scope, wanted)
    _check_spec(spec)
    text = make_key_text(spec.environment)
    now = clock.now_ms()
    row = ApiKey(
        id=ids.new("key"), tenant_id=scope.tenant_id, digest=sealer.digest(text.encode()), name=spec.name,
        environment=spec.environment, prefix=text[:-32], last4=text[-4:], scopes=wanted, created_at=now,
        expires_at=now + (lifetime_ms or spec.expires_in_days * DAY), rate_requests=spec.rate_requests,
        rate_window_s=spec.rate_window_s, allowed_ips=list(spec.allowed_ips), created_by=scope.actor,
    )  # fmt: skip

    def insert() -> None:
        row.save(force_insert=True)
        audit.record(scope, "key.issue", row.id, {"name": spec.name, "scopes": wanted})

    db.write(insert)
    return row, text


def _refuse_wider(scope: TenantScope, wanted: Sequence[str]) -> None:
    if excess := [name for name in wanted if name not in scope.scopes]:
        raise ScopeMissing(f"a key cannot be wider than its issuer: you do not hold {', '.join(excess)}")


def _check_spec(spec: KeySpec) -> None:
    if not (spec.environment.isascii() and spec.environment.isalnum()) or not 1 <= len(spec.environment) <= 12:
        raise ValidationFailed("environment must be 1 to 12 letters or digits", pointer="/environment")
    if not spec.name.strip() or len(spec.name) > 200 or not spec.name.isprintable():
        raise ValidationFailed("name must have 1 to 200 printable characters", pointer="/name")
    if not 1 <= spec.expires_in_days <= 730:
        raise ValidationFailed("a key lives 1 to 730 days", pointer="/expires_at")
    if not (1 <= spec.rate_requests <= 1_000_000 and 1 <= spec.rate_window_s <= 86_400):
        raise ValidationFailed("rate_limit must allow 1 to 1,000,000 requests in 1 to 86,400 s", pointer="/rate_limit")
    for index, network in enumerate(spec.allowed_ips):
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError as error:
            raise ValidationFailed(
                f"{network!r} is not an address or network such as 192.0.2.0/24", pointer=f"/allowed_ips/{index}"
            ) from error


def list_keys(scope: TenantScope, page: PageRequest) -> Page[ApiKey]:
    """The tenant's keys, newest first."""
    query = ApiKey.select().where(ApiKey.tenant_id == scope.tenant_id)
    fields = {"created_at": ApiKey.created_at, "name": ApiKey.name, "id": ApiKey.id, "expires_at": ApiKey.expires_at}
    return paginate(query, page, fields)


def expiring_keys(scope: TenantScope, until: int) -> list[ApiKey]:
    """Living keys that end before `until` (epoch ms), the earliest first, without those that were rotated already."""
    now = clock.now_ms()
    query = ApiKey.select().where(
        ApiKey.tenant_id == scope.tenant_id, ApiKey.revoked_at.is_null(), ApiKey.grace_until.is_null(),
        ApiKey.expires_at > now, ApiKey.expires_at <= until,
    )  # fmt: skip
    return list(query.order_by(ApiKey.expires_at, ApiKey.id))


def get_key(scope: TenantScope, key_id: str) -> ApiKey:
    """One key of the tenant; NotFound otherwise."""
    row: ApiKey | None = ApiKey.get_or_none((ApiKey.tenant_id == scope.tenant_id) & (ApiKey.id == key_id))
    if row is None:
        raise NotFound(f"there is no API key {key_id[:80]!r} here")
    return row


def person_behind(scope: TenantScope, actor: str) -> str | None:
    """The id of the user who acts, or who made the key that acts; None when no person did."""
    kind, _, name = actor.partition(":")
    while kind == "key":
        row: ApiKey | None = ApiKey.get_or_none((ApiKey.tenant_id == scope.tenant_id) & (ApiKey.id == name))
        kind, _, name = (row.created_by if row else "").partition(":")
    return name if kind == "user" else None


def rotate_key(scope: TenantScope, sealer: Sealer, key_id: str, overlap_seconds: int) -> tuple[ApiKey, str]:
    """A new key with the same grants; the old one lives for `overlap_seconds` more, at most as long as it would have.

    No other key changes.  ScopeMissing when the key is wider than the actor, Conflict when it is revoked.
    """
    if not 0 <= overlap_seconds <= 30 * 86_400:
        raise ValidationFailed("overlap_seconds must be between 0 and 2592000 (30 days)", pointer="/overlap_seconds")

    def rotate() -> tuple[ApiKey, str]:
        old = get_key(scope, key_id)
        if old.revoked_at is not None:
            raise Conflict("this key is revoked; issue a new one instead of rotating it")
        _refuse_wider(scope, old.scopes)
        text = make_key_text(old.environment)
        now = clock.now_ms()
        new = ApiKey(**{**old.__data__, "id": ids.new("key"), "digest": sealer.digest(text.encode())})
        new.prefix, new.last4, new.created_at, new.created_by = text[:-32], text[-4:], now, scope.actor
        new.expires_at = now + (old.expires_at - old.created_at)
        new.last_used_at, new.rotated_from, new.grace_until = None, old.id, None
        new.save(force_insert=True)
        grace = min(now + overlap_seconds * 1000, old.expires_at, old.grace_until or old.expires_at)
        ApiKey.update(grace_until=grace).where(ApiKey.id == old.id).execute()
        audit.record(scope, "key.rotate", old.id, {"new": new.id, "overlap_seconds": overlap_seconds})
        return new, text

    made = db.write(rotate)
    _cache.clear()
    return made


def revoke_key(scope: TenantScope, key_id: str) -> ApiKey:
    """End a key at once."""

    def revoke() -> ApiKey:
        row = get_key(scope, key_id)
        if row.revoked_at is None:
            row.revoked_at = clock.now_ms()
            row.save(only=[ApiKey.revoked_at])
            audit.record(scope, "key.revoke", row.id)
        return row

    row = db.write(revoke)
    _cache.clear()
    return row


@dataclass(frozen=True)
class Caller:
    """An authenticated key: the scope it acts in and its rate limit."""

    scope: TenantScope
    key_id: str
    rate_requests: int
    rate_window_s: int


_cache: dict[bytes, tuple[int, ApiKey]] = {}


def authenticate_key(sealer: Sealer, text: str, *, tenant_id: str | None, address: str, request_id: str) -> Caller:
    """The caller behind a key's text.  `tenant_id` is the host's tenant, None on the base host.

    Wrong, unknown and another tenant's keys raise the same InvalidApiKey after the same work.
    """
    digest = sealer.digest(text.encode())
    row = _load(digest)
    now = clock.now_ms()
    if row is None or not is_key_text(text) or tenant_id not in (None, row.tenant_id):
        raise InvalidApiKey("this API key is not known here; check that it was copied whole and belongs to this tenant")
    if row.revoked_at is not None:
        raise RevokedApiKey("this API key was revoked; ask an owner of the tenant for a new one")
    if min(row.expires_at, row.grace_until or row.expires_at) <= now:
        raise ExpiredApiKey("this API key has expired; rotate it or ask an owner of the tenant for a new one")
    if row.allowed_ips and not _allowed(address, row.allowed_ips):
        raise AddressNotAllowed(f"this API key may not be used from {address}; add the address to its allowed_ips")
    if now - (row.last_used_at or 0) > LAST_USED_MS:
        row.last_used_at = now
        db.submit(lambda: ApiKey.update(last_used_at=now).where(ApiKey.id == row.id).execute())
    scope = TenantScope(row.tenant_id, f"key:{row.id}", frozenset(row.scopes), request_id)
    return Caller(scope, row.id, row.rate_requests, row.rate_window_s)


def _load(digest: bytes) -> ApiKey | None:
    now = clock.now_ms()
    kept = _cache.get(digest)
    if kept is not None and now - kept[0] < CACHE_MS:
        return kept[1]
    row: ApiKey | None = ApiKey.get_or_none(ApiKey.digest == digest)
    if row is not None:
        if len(_cache) > 4096:
            _cache.clear()
        _cache[digest] = (now, row)
    return row


def _allowed(address: str, networks: Sequence[str]) -> bool:
    try:
        peer = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(peer in ipaddress.ip_network(network, strict=False) for network in networks)


@dataclass(frozen=True)
class RateState:
    """What the RateLimit headers say: the quota, what is left of it and seconds until it is whole again."""

    quota: int
    window_s: int
    remaining: int
    reset_s: int

    def headers(self) -> dict[str, str]:
        """RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11."""
        return {
            "RateLimit-Policy": f'"default";q={self.quota};w={self.window_s}',
            "RateLimit": f'"default";r={self.remaining};t={self.reset_s}',
        }


class RateLimiter:
    """Fixed windows per key, in memory: a restart forgives, which costs less than a write per request."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def count(self, caller: Caller) -> RateState:
        """Count one request; RateLimited with Retry-After when the window is used up."""
        now = clock.monotonic()
        with self._lock:
            ends, used = self._windows.get(caller.key_id, (0.0, 0))
            if now >= ends:
                ends, used = now + caller.rate_window_s, 0
            used += 1
            self._windows[caller.key_id] = (ends, used)
            if len(self._windows) > 10_000:
                self._windows = {key: w for key, w in self._windows.items() if w[0] > now}
        reset = max(1, round(ends - now))
        state = RateState(caller.rate_requests, caller.rate_window_s, max(0, caller.rate_requests - used), reset)
        if used > caller.rate_requests:
            raise RateLimited(
                f"this key may make {caller.rate_requests} requests in {caller.rate_window_s} s; try again in {reset} s",
                headers={**state.headers(), "Retry-After": str(reset)},
            )
        return state
