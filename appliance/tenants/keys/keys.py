"""API keys: their format, issue, rotation, revocation and authentication."""

import ipaddress
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from appliance.core import clock, ids
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.database.row_select import RowSelect
from appliance.core.errors import (
    AddressNotAllowed,
    Conflict,
    ExpiredApiKey,
    InvalidApiKey,
    NotFound,
    PolicyDenied,
    RevokedApiKey,
    ValidationFailed,
)
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import APPLIANCE, TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants.grants import confirmations
from appliance.tenants.models import ApiKey
from appliance.tenants.scopes import every_scope, validate_scopes

from . import key_addresses, key_limits, lineage, resource_limits
from .daily_quotas import DailyQuota, check_quota
from .key_limits import KeyLimits
from .lineage import KeyAuthority, RateLimit

# The row type that the functions below return; edges import it from here.
__all__ = ["ApiKey"]

DAY = 86_400_000
LAST_USED_MS = 60_000
KeyKind = Literal["service", "agent"]
"""Who uses a key: a program, or an agent, whose model-driven calls policies treat as an agent's."""
KINDS: tuple[KeyKind, ...] = get_args(KeyKind)


def make_key_text(environment: str) -> str:
    """A new random key: `gos_<env>_<30 base62><6 base62 CRC-32 of what precedes>`."""
    body = f"gos_{environment}_{''.join(secrets.choice(ids.ALPHABET) for _ in range(30))}"
    return body + ids.base62(zlib.crc32(body.encode()), 6)


def is_key_text(text: str) -> bool:
    """Whether the text has the form of a key and valid check digits."""
    body, check = text[:-6], text[-6:]
    return text.startswith("gos_") and len(text) >= 42 and ids.base62(zlib.crc32(body.encode()), 6) == check


FIRST = "first"
"""The environment of the key that a first run creates."""


@dataclass(frozen=True)
class KeySpec:
    """Properties of a new key; None means the default of docs/contract.md § 4, for `limits` and
    `daily_requests` none.

    With `is_default_rate`, no addresses, limits or lifetime, a key issued by another key inherits that key's limits where they are
    stricter.  Keys issued by an agent key are agent keys, whatever `kind` says.
    """

    name: str
    scopes: Sequence[str]
    environment: str = "live"
    expires_in_days: int = 365
    rate_requests: int = 600
    rate_window_s: int = 60
    allowed_ips: Sequence[str] = ()
    kind: KeyKind = "service"
    is_default_rate: bool = False
    limits: resource_limits.StoredLimits | None = None
    daily_requests: int | None = None
    records_requests: bool = False


def issue_key(
    scope: TenantScope, sealer: Sealer, spec: KeySpec, *, lifetime_ms: int | None = None, account: str = ""
) -> tuple[ApiKey, str]:
    """Issue a key; returns it with its text, which is shown only now.  It is limited by its issuer, and ends with it.

    The issuer is the actor, or the service account `account` (`service:…`), of which the caller has checked that it may have
    this key; the limits of an acting key apply to it all the same.
    ScopeMissing for scopes the issuer lacks; ValidationFailed for a higher rate, other addresses or a later expiry than
    those of the issuing key, Conflict for too many generations of keys.
    """
    scopes = validate_scopes(spec.scopes, known=every_scope(scope.tenant_id))
    key_limits.check_not_wider(scope, scopes)
    _check_spec(spec)
    if scope.tenant_id == APPLIANCE:
        _check_appliance_spec(spec)
    limits = resource_limits.normalize(spec.limits)
    text = make_key_text(spec.environment)
    now = clock.now_ms()
    row = ApiKey(
        id=ids.new("key"), tenant_id=scope.tenant_id, digest=sealer.digest(text.encode()), name=spec.name,
        environment=spec.environment, prefix=text[:-32], last4=text[-4:], scopes=scopes, created_at=now,
        expires_at=now + (lifetime_ms or spec.expires_in_days * DAY), rate_requests=spec.rate_requests,
        rate_window_s=spec.rate_window_s, allowed_ips=list(spec.allowed_ips), created_by=scope.actor, issuer=account or scope.actor,
        kind="agent" if scope.has_agent_key else spec.kind, limits=limits,
        daily_requests=spec.daily_requests, records_requests=spec.records_requests,
    )  # fmt: skip
    if bounds := key_limits.find_limits(scope):
        _limit_new(row, bounds, is_default_rate=spec.is_default_rate, is_default_expiry=lifetime_ms is None)
        if account:
            key_limits.limit_quota(bounds, row)

    def insert() -> None:
        key_limits.check_not_wider(lineage.reload_scope(scope), scopes)  # the issuer may have lost them, or be gone, by now
        row.save(force_insert=True)
        fields = {"name": spec.name, "scopes": scopes, "kind": row.kind} | ({"issuer": account} if account else {})
        audit.record(scope, "key.issue", row.id, fields | ({} if row.limits is None else {"limits": row.limits}))

    db.write(insert)
    return row, text


def _limit_new(row: ApiKey, bounds: KeyLimits, *, is_default_rate: bool, is_default_expiry: bool) -> None:
    """Limit defaults to the issuing key's limits; ValidationFailed, with a pointer, for values chosen beyond them."""
    if not is_default_rate:
        key_limits.check_rate(bounds, row.rate_requests, row.rate_window_s)
    elif not bounds.allows_rate(row.rate_requests, row.rate_window_s):
        row.rate_requests, row.rate_window_s = bounds.rate
    key_limits.check_networks(bounds, row.allowed_ips)
    row.allowed_ips = row.allowed_ips or bounds.allowed_ips
    if row.limits is None:
        row.limits = resource_limits.to_stored(bounds.resources)
    resource_limits.check_within(row.limits, bounds.resources)
    if not is_default_expiry:
        key_limits.check_expiry(bounds, row.expires_at)
    row.expires_at = min(row.expires_at, bounds.ends_at)


def _check_spec(spec: KeySpec) -> None:
    if not (spec.environment.isascii() and spec.environment.isalnum()) or not 1 <= len(spec.environment) <= 12:
        raise ValidationFailed("environment must be 1 to 12 letters or digits", pointer="/environment")
    check_name(spec.name)
    check_quota(spec.daily_requests)
    if not 1 <= spec.expires_in_days <= 730:
        raise ValidationFailed("a key's lifetime must be 1 to 730 days", pointer="/expires_at")
    if not (1 <= spec.rate_requests <= 1_000_000 and 1 <= spec.rate_window_s <= 86_400):
        raise ValidationFailed("rate_limit must allow 1 to 1,000,000 requests in 1 to 86,400 s", pointer="/rate_limit")
    if spec.kind not in KINDS:
        raise ValidationFailed(
            Sentence("kind must be %(kinds)s, not %(kind)s", kinds=" or ".join(KINDS), kind=repr(spec.kind[:40])), pointer="/kind"
        )
    for index, network in enumerate(spec.allowed_ips):
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError as error:
            raise ValidationFailed(
                Sentence("%(network)s is not an address or network such as 192.0.2.0/24", network=repr(network)),
                pointer=f"/allowed_ips/{index}",
            ) from error


def _check_appliance_spec(spec: KeySpec) -> None:
    if spec.kind != "service" or spec.limits is not None or spec.daily_requests is not None:
        raise ValidationFailed("a key of the appliance is a service key without limits to resources and without a daily quota")


def check_name(name: str) -> None:
    """ValidationFailed unless a key can have this name."""
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise ValidationFailed("name must have 1 to 200 printable characters", pointer="/name")


def list_keys(scope: TenantScope, page: PageRequest, account: str = "") -> Page[ApiKey]:
    """The tenant's keys, or those of the service account `account` (`service:…`), newest first."""
    query = RowSelect(ApiKey).where(ApiKey.tenant_id == scope.tenant_id)
    if account:
        query = query.where(ApiKey.issuer == account)
    fields = {"created_at": ApiKey.created_at, "name": ApiKey.name, "id": ApiKey.id, "expires_at": ApiKey.expires_at}
    return paginate(query, page, fields)


def expiring_keys(scope: TenantScope, until: int) -> list[ApiKey]:
    """Active keys that expire before `until` (epoch ms), earliest first, without those already rotated."""
    now = clock.now_ms()
    query = ApiKey.select().where(
        ApiKey.tenant_id == scope.tenant_id, ApiKey.revoked_at.is_null(), ApiKey.grace_until.is_null(),
        ApiKey.expires_at > now, ApiKey.expires_at <= until,
    )  # fmt: skip
    return list(query.order_by(ApiKey.expires_at, ApiKey.id))


def get_key(scope: TenantScope, key_id: str) -> ApiKey:
    """One key of the tenant; NotFound."""
    row: ApiKey | None = ApiKey.get_or_none((ApiKey.tenant_id == scope.tenant_id) & (ApiKey.id == key_id))
    if row is None:
        raise NotFound(Sentence("there is no API key %(key_id)s in this tenant", key_id=repr(key_id[:80])))
    return row


def find_name(scope: TenantScope, key_id: str) -> str | None:
    """The name of one key of the tenant, or None."""
    rows = db.rows("SELECT name FROM api_key WHERE tenant_id = ? AND id = ?", (scope.tenant_id, key_id))
    return str(rows[0][0]) if rows else None


def rotate_key(scope: TenantScope, sealer: Sealer, key_id: str, overlap_seconds: int) -> tuple[ApiKey, str]:
    """Replace a key by a new one with the same grants; the old one works for `overlap_seconds` more, or until it expires.

    A key that rotates itself keeps its issuer, so permissions do not change.  If somebody else rotates it, they become the issuer,
    except of a key of a service account: they must have its scopes, and a rotating key limits the new key to its own rate and
    expiry.  Keys that the old key issued depend on the new one from now on; no other key changes.

    ScopeMissing if the key has more scopes than the actor, PolicyDenied if the actor descends from it or belongs to the same
    service account, ValidationFailed if it is used from addresses that the actor may not use, Conflict if it is revoked or has
    ended with its issuer.
    """
    if not 0 <= overlap_seconds <= 30 * 86_400:
        raise ValidationFailed("overlap_seconds must be between 0 and 2592000 (30 days)", pointer="/overlap_seconds")

    def rotate() -> tuple[ApiKey, str]:
        old = get_key(scope, key_id)
        if old.revoked_at is not None:
            raise Conflict("this key is revoked; issue a new one instead of rotating it")
        if scope.has_agent_key and old.kind != "agent":
            raise PolicyDenied("an agent key cannot rotate a service key; ask a person who manages API keys to rotate it")
        text = make_key_text(old.environment)
        now = clock.now_ms()
        new = ApiKey(**{**old.__data__, "id": ids.new("key"), "digest": sealer.digest(text.encode())})
        new.prefix, new.last4, new.created_at, new.created_by = text[:-32], text[-4:], now, scope.actor
        new.expires_at = now + (old.expires_at - old.created_at)
        new.last_used_at, new.rotated_from, new.grace_until, new.counted_as = None, old.id, None, old.counted_as or old.id
        _set_issuer(scope, old, new)
        new.save(force_insert=True)
        grace = min(now + overlap_seconds * 1000, old.expires_at, old.grace_until or old.expires_at)
        ApiKey.update(grace_until=grace).where(ApiKey.id == old.id).execute()
        issued_by_old = (ApiKey.tenant_id == scope.tenant_id) & (ApiKey.issuer == f"key:{old.id}")
        ApiKey.update(issuer=f"key:{new.id}").where(issued_by_old).execute()
        audit.record(scope, "key.rotate", old.id, {"new": new.id, "overlap_seconds": overlap_seconds})
        return new, text

    result = db.write(rotate)
    lineage.clear_cache()
    return result


def _set_issuer(scope: TenantScope, old: ApiKey, new: ApiKey) -> None:
    """Set the issuer of a rotated key, with the limits that follow."""
    if scope.actor == f"key:{old.id}":
        if old.orphaned_at is not None:
            raise Conflict("the issuer of this key is gone; ask an owner to adopt the key in the console before rotating it")
        if above := lineage.build_authority(old).ancestors:
            new.expires_at = min(new.expires_at, *map(lineage.expiry_of, above))
        return
    key_limits.check_not_wider(scope, old.scopes)
    key_limits.check_no_descendant(scope, old, "rotate")
    key_limits.check_not_beside(scope, old, "rotate")
    bounds = key_limits.find_limits(scope)
    key_limits.limit_transferred(bounds, new, "rotate")
    if lineage.account_in(old.issuer):
        key_limits.limit_quota(bounds, new)
    else:
        new.issuer = scope.actor
    new.orphaned_at, new.orphan_until = None, None


def revoke_key(scope: TenantScope, key_id: str) -> ApiKey:
    """Revoke a key immediately; NotFound."""

    def revoke() -> ApiKey:
        row = get_key(scope, key_id)
        if row.revoked_at is None:
            row.revoked_at = clock.now_ms()
            row.save(only=[ApiKey.revoked_at])
            confirmations.withdraw_open(scope, "key", row.id)
            audit.record(scope, "key.revoke", row.id)
        return row

    row = db.write(revoke)
    lineage.clear_cache()
    return row


def convert_to_agent_key(scope: TenantScope, key_id: str) -> ApiKey:
    """Turn a key into an agent key.  This cannot be undone: issue a new key to get a service key."""

    def change() -> ApiKey:
        row = get_key(scope, key_id)
        if row.kind != "agent":
            row.kind = "agent"
            row.save(only=[ApiKey.kind])
            audit.record(scope, "key.make_agent", row.id)
        return row

    row = db.write(change)
    lineage.clear_cache()
    return row


@dataclass(frozen=True)
class Caller:
    """An authenticated key: its scope, its rate limit and those of the keys `above` it, its issuer first.

    `withheld` are scopes it was issued with that its issuer no longer has; `digest` is that of the key's text.
    """

    scope: TenantScope
    key_id: str
    rate_requests: int
    rate_window_s: int
    above: tuple[RateLimit, ...] = ()
    withheld: frozenset[str] = frozenset()
    digest: bytes = b""
    quotas: tuple[DailyQuota, ...] = ()
    records_requests: bool = False


def authenticate_key(sealer: Sealer, text: str, *, tenant_id: str | None, address: str, request_id: str) -> Caller:
    """Authenticate a key's text.  `tenant_id` is the host's tenant, None on the base host, `APPLIANCE` for its own routes there.

    The scopes are those that the key and all its ancestors have now, cached for at most half a second.  Wrong and unknown keys
    and those of other tenants raise the same InvalidApiKey after the same work.
    """
    authority = lineage.find_by_digest(sealer.digest(text.encode()))
    return authorize_key(authority, text, tenant_id=tenant_id, address=address, request_id=request_id)


def authorize_key(
    authority: KeyAuthority | None, text: str, *, tenant_id: str | None, address: str, request_id: str
) -> Caller:
    """As `authenticate_key`, for a key already found by its text's digest, without database access."""
    if authority is None or tenant_id not in _accepting(authority.row.tenant_id):
        raise InvalidApiKey("this API key is not valid here; check that it was copied completely and belongs to this tenant")
    row, now = authority.row, clock.now_ms()
    if now >= authority.valid_until:
        _check_active(authority, now)
    if authority.has_allowed_ips:
        _check_address(authority, address)
    if now - (row.last_used_at or 0) > LAST_USED_MS:
        row.last_used_at = now
        db.submit(lambda: ApiKey.update(last_used_at=now).where(ApiKey.id == row.id).execute(), is_shared=True)
    key_addresses.note(row, address, now)
    own, *above = authority.rate_limits
    scope = TenantScope(
        row.tenant_id, f"key:{own.key_id}", authority.scopes, request_id, has_agent_key=authority.has_agent_key,
        limits=authority.limits,
    )  # fmt: skip
    return Caller(
        scope=scope, key_id=own.key_id, rate_requests=own.requests, rate_window_s=own.window_s, above=tuple(above),
        withheld=authority.withheld, digest=bytes(row.digest), quotas=authority.quotas, records_requests=row.records_requests,
    )


def _accepting(tenant_id: str) -> tuple[str | None, ...]:
    """Where a key works: its tenant, and the base host unless it is one of the appliance, which only its own routes accept."""
    return (tenant_id,) if tenant_id == APPLIANCE else (tenant_id, None)


def _check_active(authority: KeyAuthority, now: int) -> None:
    """RevokedApiKey or ExpiredApiKey if the key or one of its ancestors has ended."""
    if authority.row.revoked_at is not None:
        raise RevokedApiKey("this API key was revoked; ask an owner of the tenant for a new one")
    if lineage.expiry_of(authority.row) <= now:
        raise ExpiredApiKey("this API key has expired; rotate it or ask an owner of the tenant for a new one")
    if authority.ended or authority.ends_at <= now:
        raise RevokedApiKey(authority.ended or lineage.PARENT_ENDED)


def _check_address(authority: KeyAuthority, address: str) -> None:
    """AddressNotAllowed if the key or one of its ancestors may not be used from the address."""
    for key in authority.chain:
        if key.allowed_ips and not lineage.is_in_networks(address, key.allowed_ips):
            raise AddressNotAllowed(_address_message(address, is_own=key is authority.row))


def _address_message(address: str, *, is_own: bool) -> str:
    if is_own:
        return Sentence("this API key cannot be used from %(address)s; add the address to its allowed_ips", address=address)
    return Sentence(
        "this API key cannot be used from %(address)s, because the key that issued it cannot; ask an owner "
        "of the tenant to adopt it in the console (API keys)",
        address=address,
    )
