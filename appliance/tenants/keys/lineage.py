"""The current permissions of an API key: its own scopes, limited by those of everyone it descends from.

Every key has an issuer: a person (`user:…`), a service account (`service:…`), another key (`key:…`) or the appliance itself
(`system`).  A key never has more scopes than its issuer has at this moment, up the whole chain, and it ends when a link of the
chain ends: a person is removed from the tenant, a service account is deleted, a key is revoked or expires.  It pauses while the
account of that person or program is disabled.  A key issued by `system` has no such limit.

A key of the appliance itself depends on the account of its issuer, who needs no membership.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from peewee import fn

from appliance.core import clock
from appliance.core.database import db
from appliance.core.database.caches import Cache
from appliance.core.scope import APPLIANCE, ResourceNames, TenantScope
from appliance.tenants.models import ApiKey, ServiceAccountRow
from appliance.tenants.scopes import every_scope, scopes_of_role

from . import resource_limits
from .daily_quotas import DailyQuota

CACHE_MS = 500
MAX_GENERATIONS = 8
"""The maximum depth of keys issued by keys; the chain is read at every authentication that is not cached."""
_MAX_CHAIN = 64  # for keys issued before there was a limit

_HELP = "an owner of the tenant can adopt it in the console (API keys), or issue a new one"
ISSUER_REMOVED = f"this API key has ended, because the person who issued it is no longer a member of this tenant; {_HELP}"
ISSUER_DISABLED = (
    "this API key does not work, because the account of the person who issued it is disabled; it works again when the account is "
    "enabled, and an owner of the tenant can adopt it in the console (API keys)"
)
ADMINISTRATOR_LEFT = (
    "this key of the appliance has ended, because the account of the person who issued it is disabled or was deleted; ask an "
    "administrator of the appliance for a new one"
)
ACCOUNT_DISABLED = (
    "this API key does not work, because its service account is disabled; an owner of the tenant can enable it in the console "
    "(Service accounts)"
)
ACCOUNT_DELETED = "this API key has ended, because its service account was deleted; ask an owner of the tenant for a new one"
PARENT_ENDED = f"this API key has ended, because the key that issued it was revoked or has expired; {_HELP}"


@dataclass(frozen=True)
class KeyAuthority:
    """A key's current authority: its scopes, the keys it descends from (its issuer first) and why its chain has ended, if it has.

    `ends_at` is when the first key of the chain expires, in epoch milliseconds; `ended` ignores the key's own row.
    """

    row: ApiKey
    scopes: frozenset[str]
    ancestors: tuple[ApiKey, ...] = ()
    ended: str = ""
    ends_at: int = 0

    @cached_property
    def withheld(self) -> frozenset[str]:
        """Scopes the key was issued with that its issuer no longer has."""
        return frozenset(self.row.scopes) - self.scopes

    @cached_property
    def chain(self) -> tuple[ApiKey, ...]:
        """The key and those it descends from."""
        return (self.row, *self.ancestors)

    @cached_property
    def valid_until(self) -> int:
        """Until when nothing of the chain ends by itself, in epoch milliseconds; 0 if something has."""
        return 0 if self.ended or self.row.revoked_at is not None else min(expiry_of(self.row), self.ends_at)

    @property
    def account(self) -> str:
        """The service account that the key belongs to, directly or through the keys above it, as an actor; empty if to none."""
        return account_in(self.chain[-1].issuer)

    @cached_property
    def rate_limits(self) -> tuple["RateLimit", ...]:
        """The rate limits that a request counts against: the key's own first."""
        return tuple(RateLimit(key.id, key.rate_requests, key.rate_window_s) for key in self.chain)

    @cached_property
    def quotas(self) -> tuple[DailyQuota, ...]:
        """The daily quotas that a request counts against."""
        return tuple(DailyQuota(key.id, key.counted_as or key.id, key.daily_requests) for key in self.chain if key.daily_requests)

    @cached_property
    def has_agent_key(self) -> bool:
        """Whether the key or one it descends from belongs to an agent."""
        return any(key.kind == "agent" for key in self.chain)

    @cached_property
    def limits(self) -> ResourceNames | None:
        """The only processes, collections and integrations that the key may reach; None if no key of the chain is limited."""
        return resource_limits.combine(self.chain)

    @cached_property
    def has_allowed_ips(self) -> bool:
        """Whether the chain restricts the addresses that the key may be used from."""
        return any(key.allowed_ips for key in self.chain)


@dataclass(frozen=True)
class RateLimit:
    """The rate limit of a key that a request counts against: requests per window in seconds."""

    key_id: str
    requests: int
    window_s: int


def expiry_of(row: ApiKey) -> int:
    """When the key itself expires, in epoch milliseconds: at the end of its lifetime, or of the overlap after its rotation."""
    return int(min(row.expires_at, row.grace_until or row.expires_at))


@dataclass(frozen=True)
class Issuers:
    """The data for walking chains: every key of a tenant that issued another, by id, every enabled member's role, who is
    disabled, and the scopes of every enabled service account."""

    keys: Mapping[str, ApiKey]
    roles: Mapping[str, str]
    disabled: frozenset[str]
    accounts: Mapping[str, frozenset[str]]


def load_issuers(scope: TenantScope, *, as_enabled: str = "") -> Issuers:
    """Load a tenant's issuers at once, for callers that read many keys; the user `as_enabled` counts as enabled."""
    here = ApiKey.tenant_id == scope.tenant_id
    issuing = ApiKey.select(fn.SUBSTR(ApiKey.issuer, 5)).where(here, ApiKey.issuer.startswith("key:"))
    rows = ApiKey.select().where(here, ApiKey.id.in_(issuing))
    roles: dict[str, str] = {}
    disabled: set[str] = set()
    for user_id, role, disabled_at in db.rows(_ROLES, (scope.tenant_id,)):
        if disabled_at is None or user_id == as_enabled:
            roles[str(user_id)] = str(role)
        else:
            disabled.add(str(user_id))
    accounts = {str(name): _read_scopes(scopes) for name, scopes in db.rows(_ENABLED_ACCOUNTS, (scope.tenant_id,))}
    return Issuers({row.id: row for row in rows}, roles, frozenset(disabled), accounts)


_ROLES = """
SELECT m.user_id, m.role, p.disabled_at FROM membership AS m JOIN person AS p ON p.id = m.user_id WHERE m.tenant_id = ?"""

_ENABLED_ACCOUNTS = "SELECT id, scopes FROM service_account WHERE tenant_id = ? AND disabled_at IS NULL AND deleted_at IS NULL"


def build_authority(row: ApiKey, issuers: Issuers | None = None) -> KeyAuthority:
    """Walk up the key's chain, by the database's current state or by the preloaded `issuers`."""
    now, scopes, ends_at = clock.now_ms(), frozenset(row.scopes), expiry_of(row)
    chain = [row]
    above = _find_issuer(row, now, issuers)
    while isinstance(above, ApiKey) and above not in chain and len(chain) < _MAX_CHAIN:
        scopes &= frozenset(above.scopes)
        ends_at = min(ends_at, expiry_of(above))
        chain.append(above)
        above = _find_issuer(above, now, issuers)
    ancestors, last = tuple(chain[1:]), chain[-1]
    if isinstance(above, frozenset):
        return KeyAuthority(row, scopes & above, ancestors, "", ends_at)
    if last.orphan_until and last.orphan_until > now:
        return KeyAuthority(row, scopes, ancestors, "", min(ends_at, last.orphan_until))
    return KeyAuthority(row, frozenset(), ancestors, _reason_of_end(last, issuers), ends_at)


def _reason_of_end(last: ApiKey, issuers: Issuers | None) -> str:
    """Why the topmost key of a chain has no issuer that counts."""
    kind, _, name = last.issuer.partition(":")
    if kind == "key":
        return PARENT_ENDED
    if last.tenant_id == APPLIANCE:
        return ADMINISTRATOR_LEFT
    if kind == "service":
        rows = db.rows("SELECT deleted_at FROM service_account WHERE tenant_id = ? AND id = ?", (last.tenant_id, name))
        return ACCOUNT_DISABLED if rows and rows[0][0] is None else ACCOUNT_DELETED
    if last.orphaned_at is not None or kind != "user":
        return ISSUER_REMOVED
    is_disabled = name in issuers.disabled if issuers else bool(db.rows(f"{_ROLES} AND m.user_id = ?", (last.tenant_id, name)))
    return ISSUER_DISABLED if is_disabled else ISSUER_REMOVED


def _find_issuer(key: ApiKey, now: int, issuers: Issuers | None = None) -> ApiKey | frozenset[str] | None:
    """The active key that issued this one, or the current scopes of the issuing person, service account or appliance; None if it
    is gone."""
    kind, _, name = key.issuer.partition(":")
    if key.orphaned_at is not None:
        return None
    if kind == "system":
        return every_scope(key.tenant_id)
    if kind == "key":
        parent = issuers.keys.get(name) if issuers else _find_key(key.tenant_id, name)
        return parent if parent is not None and _is_alive(parent, now) else None
    if kind == "service":
        return issuers.accounts.get(name) if issuers else find_account_scopes(key.tenant_id, name)
    if kind != "user":
        return None
    return _scopes_of_person(key.tenant_id, name, issuers)


def find_account_scopes(tenant_id: str, account_id: str) -> frozenset[str] | None:
    """The scopes of a service account; None while it is disabled, and if there is none."""
    rows = db.rows(f"{_ENABLED_ACCOUNTS} AND id = ?", (tenant_id, account_id))
    return _read_scopes(rows[0][1]) if rows else None


def _read_scopes(stored: object) -> frozenset[str]:
    return frozenset(ServiceAccountRow.scopes.python_value(stored))


def account_in(issuer: str) -> str:
    """The issuer if it is a service account, as an actor; empty otherwise."""
    return issuer if issuer.startswith("service:") else ""


def find_account_of(scope: TenantScope, actor: str) -> str:
    """The service account that a key (`key:…`) belongs to, directly or through the keys above it, as an actor; empty if to none."""
    visited: set[str] = set()
    while actor.startswith("key:") and actor not in visited:
        visited.add(actor)
        sql = "SELECT issuer FROM api_key WHERE tenant_id = ? AND id = ?"
        actor = next((str(row[0]) for row in db.rows(sql, (scope.tenant_id, actor.removeprefix("key:")))), "")
    return account_in(actor)


def _scopes_of_person(tenant_id: str, user_id: str, issuers: Issuers | None = None) -> frozenset[str] | None:
    """What a person may do in a tenant, or what a key of the appliance that they issued may do; None if nothing."""
    if tenant_id == APPLIANCE:
        is_enabled = db.rows("SELECT 1 FROM person WHERE id = ? AND disabled_at IS NULL", (user_id,))
        return every_scope(tenant_id) if is_enabled else None
    role = issuers.roles.get(user_id) if issuers else find_role(tenant_id, user_id)
    return None if role is None else scopes_of_role(role)


def find_role(tenant_id: str, user_id: str) -> str | None:
    """A user's role in a tenant; None without one, and while the account is disabled."""
    rows = db.rows(f"{_ROLES} AND m.user_id = ? AND p.disabled_at IS NULL", (tenant_id, user_id))
    return str(rows[0][1]) if rows else None


def _find_key(tenant_id: str, key_id: str) -> ApiKey | None:
    row: ApiKey | None = ApiKey.get_or_none((ApiKey.tenant_id == tenant_id) & (ApiKey.id == key_id))
    return row


def _is_alive(row: ApiKey, now: int) -> bool:
    return row.revoked_at is None and expiry_of(row) > now


def is_alive(row: ApiKey) -> bool:
    """Whether the key itself is neither revoked nor expired, regardless of its issuer."""
    return _is_alive(row, clock.now_ms())


_by_digest: Cache[bytes, tuple[int, KeyAuthority]] = Cache(4096)
_by_id: Cache[tuple[str, str], tuple[int, KeyAuthority | None]] = Cache(4096)


def find_cached(digest: bytes) -> KeyAuthority | None:
    """The key with this digest from the cache, at most half a second old; no database access."""
    cached = _by_digest.get(digest)
    return cached[1] if cached is not None and 0 <= clock.now_ms() - cached[0] < CACHE_MS else None


def find_by_digest(digest: bytes) -> KeyAuthority | None:
    """The key with this digest, at most half a second old; None if there is none, which is not cached."""
    if (remembered := find_cached(digest)) is not None:
        return remembered
    now = clock.now_ms()
    row: ApiKey | None = ApiKey.get_or_none(ApiKey.digest == digest)
    if row is None:
        return None
    authority = build_authority(row)
    _by_digest[digest] = (now, authority)
    return authority


def find_by_id(scope: TenantScope, key_id: str) -> KeyAuthority | None:
    """As `find_by_digest` by the key's id, for work that outlives its request; None if the tenant has no such key."""
    now, name = clock.now_ms(), (scope.tenant_id, key_id)
    cached = _by_id.get(name)
    if cached is not None and 0 <= now - cached[0] < CACHE_MS:
        return cached[1]
    authority = load_authority(scope, key_id)
    _by_id[name] = (now, authority)
    return authority


def load_authority(scope: TenantScope, key_id: str) -> KeyAuthority | None:
    """As `find_by_id`, without the cache."""
    row = _find_key(scope.tenant_id, key_id)
    return None if row is None else build_authority(row)


def clear_cache() -> None:
    """Clear the cache, because keys, roles or memberships have changed; other processes follow within half a second."""
    _by_digest.clear()
    _by_id.clear()


def reload_scope(scope: TenantScope) -> TenantScope:
    """The scope without permissions its actor, a person or a key, has lost meanwhile; call it inside the write that relies on
    them."""
    kind, _, name = scope.actor.partition(":")
    if kind == "user":
        return replace(scope, scopes=scope.scopes & (_scopes_of_person(scope.tenant_id, name) or frozenset()))
    if kind == "key":
        authority = load_authority(scope, name)
        is_valid = authority is not None and is_alive(authority.row)
        return replace(scope, scopes=scope.scopes & authority.scopes if authority and is_valid else frozenset())
    return scope


def is_in_networks(address: str, networks: Sequence[str]) -> bool:
    """Whether an address or network lies in one of the networks; always true if there are none."""
    if not networks:
        return True
    try:
        inner = ipaddress.ip_network(address, strict=False)
    except ValueError:
        return False
    outers = (ipaddress.ip_network(each, strict=False) for each in networks)
    return any(inner.version == outer.version and inner.subnet_of(outer) for outer in outers)  # type: ignore[arg-type]


def descendants_of(scope: TenantScope, issuer: str) -> list[tuple[int, ApiKey]]:
    """The active keys that descend from an issuer (`user:…` or `key:…`) with their depth from 0, each right after its issuer."""
    living = [row for row in ApiKey.select().where(ApiKey.tenant_id == scope.tenant_id).order_by(ApiKey.id) if is_alive(row)]
    children: dict[str, list[ApiKey]] = {}
    for row in living:
        children.setdefault(row.issuer, []).append(row)
    tree: list[tuple[int, ApiKey]] = []
    waiting = [(0, row) for row in reversed(children.get(issuer, []))]
    visited: set[str] = set()
    while waiting:
        depth, row = waiting.pop()
        if row.id not in visited:
            visited.add(row.id)
            tree.append((depth, row))
            waiting += [(depth + 1, child) for child in reversed(children.get(f"key:{row.id}", []))]
    return tree


def root_of(scope: TenantScope) -> str:
    """The origin of the scope's actor: for a key, the person or service account at the top of its chain, or its topmost key."""
    kind, _, key_id = scope.actor.partition(":")
    authority = load_authority(scope, key_id) if kind == "key" else None
    if authority is None:
        return scope.actor
    top = (authority.row, *authority.ancestors)[-1]
    return str(top.issuer) if top.issuer.startswith(("user:", "service:")) else f"key:{top.id}"


def people_behind(scope: TenantScope, actor: str) -> frozenset[str]:
    """The ids of all users behind an actor: the person, or whoever created, issued or adopted the key or its ancestors, and
    whoever created or is responsible for the service account that they belong to."""
    return people_behind_each(scope, [actor])[actor]


def people_behind_each(scope: TenantScope, actors: Iterable[str]) -> dict[str, frozenset[str]]:
    """As `people_behind`, for several actors with one query per generation of keys."""
    unique_actors = set(actors)
    above: dict[str, set[str]] = {}
    waiting = unique_actors
    while names := sorted(waiting - above.keys()):
        above |= {name: set() for name in names} | _parents_of_keys(scope, names) | _people_of_accounts(scope, names)
        waiting = set().union(*(above[name] for name in names))
    return {actor: _people_above(actor, above) for actor in unique_actors}


def _parents_of_keys(scope: TenantScope, actors: Sequence[str]) -> dict[str, set[str]]:
    """Who created and who issued each API key among the actors."""
    keys = [name.removeprefix("key:") for name in actors if name.startswith("key:")]
    sql = f"SELECT id, created_by, issuer FROM api_key WHERE tenant_id = ? AND id IN ({', '.join('?' * len(keys))})"  # noqa: S608
    rows = db.rows(sql, (scope.tenant_id, *keys)) if keys else ()
    return {f"key:{name}": {str(created_by), str(issuer)} for name, created_by, issuer in rows}


def _people_of_accounts(scope: TenantScope, actors: Sequence[str]) -> dict[str, set[str]]:
    """Who created each service account among the actors, and who is responsible for it."""
    accounts = [name.removeprefix("service:") for name in actors if account_in(name)]
    rows = scope.select(ServiceAccountRow).where(ServiceAccountRow.id.in_(accounts)) if accounts else ()
    return {f"service:{row.id}": {row.created_by} | ({f"user:{row.responsible}"} if row.responsible else set()) for row in rows}


def _people_above(actor: str, above: Mapping[str, set[str]]) -> frozenset[str]:
    visited, waiting = set[str](), {actor}
    while waiting:
        visited |= waiting
        waiting = set().union(*(above.get(name, ()) for name in waiting)) - visited
    return frozenset(name.removeprefix("user:") for name in visited if name.startswith("user:"))
