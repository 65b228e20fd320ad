"""OAuth 2 tokens of integrations: sealed, renewed by one process at a time, stored before use.

There is one row per integration.  Whoever finds its token expired takes the row's lease, requests a new one and stores it
under the generation it started with; everyone else waits for that.  Tokens belong to an audience, a digest of where the
settings send them: when it changes, they are no longer sent.
"""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from appliance.connectors import OAuth, oauth_of
from appliance.connectors.context import BoundHttp
from appliance.connectors.contract import AuthError, TransientError
from appliance.connectors.egress import EgressClient
from appliance.connectors.oauth import ASK_SECONDS, GrantRefused, TokenAnswer, Tokens, request_by_client, request_by_refresh
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.leases import LeaseLost, LeaseTable
from appliance.core.scope import TenantScope
from appliance.integrations.connections import OpenedIntegration
from appliance.integrations.models import TokenRow
from appliance.integrations.settings import secret_targets, value_at
from appliance.monitor import Line, write_lines

LEASE_MS = int(ASK_SECONDS * 1000) + 10_000
LEASES = LeaseTable(
    TokenRow, ("tenant_id", "integration_id"), lease="lease_until", owner="lease_owner", fence="generation", is_versioned=True
)
_POLL_S = 0.1
# The client's proof of identity may change without the tokens going anywhere else.
_NO_AUDIENCE = ("client_secret", "client_auth")

State = Literal["connected", "not_connected", "expired"]


@dataclass(frozen=True)
class Connection:
    """An integration's connection to its provider; times in epoch ms, `scope` is what was granted."""

    state: State
    problem: str = ""
    scope: str = ""
    connected_by: str = ""
    connected_at: int | None = None
    renewed_at: int | None = None


@dataclass(frozen=True)
class StoredTokens:
    """The tokens of one generation; empty strings if there are none."""

    access: str = field(default="", repr=False)
    refresh: str = field(default="", repr=False)
    scope: str = ""
    generation: int = 0
    renew_at: int | None = None
    problem: str = ""

    def is_good(self, refused: str, now: int) -> bool:
        """Whether the access token is usable: present, not refused, and not about to expire."""
        return self.access not in ("", refused) and (self.renew_at is None or now < self.renew_at)


class TokenStore:
    """Stores and renews the tokens of every integration; rows are shared by all processes."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, str], threading.Lock] = {}

    def tokens_of(self, ready: OpenedIntegration, client: EgressClient) -> Tokens | None:
        """The tokens for one call; None unless the integration's credentials are of the kind oauth2."""
        oauth = oauth_of(ready.auth)
        if oauth is None:
            return None
        return TrialTokens(ready, oauth, client) if ready.is_trial else CallTokens(self, ready, oauth, client)

    def audience(self, ready: OpenedIntegration) -> str:
        """A digest of the audience of the tokens."""
        auth = {name: value for name, value in ready.auth.items() if name not in _NO_AUDIENCE}
        targets = secret_targets(ready.installed.connector.settings_schema)
        parts = [ready.installed.name, auth, [value_at(ready.settings, path) for path in targets]]
        return self._sealer.digest(json.dumps(parts, sort_keys=True, default=str).encode()).hex()

    def load(self, scope: TenantScope, ready: OpenedIntegration) -> StoredTokens:
        """The stored tokens for the integration's current audience."""
        row = scope.find(TokenRow, integration_id=ready.slug)
        if row is None:
            return StoredTokens()
        if row.audience != self.audience(ready):
            return StoredTokens(generation=row.generation)
        opened = json.loads(self._sealer.open(bytes(row.sealed), _context(scope, ready.slug)))
        return StoredTokens(opened["access"], opened["refresh"], opened["scope"], row.generation, row.renew_at, row.problem)

    def connection(self, scope: TenantScope, ready: OpenedIntegration) -> Connection:
        """The integration's connection to its provider."""
        row, tokens = scope.find(TokenRow, integration_id=ready.slug), self.load(scope, ready)
        if row is None or not (tokens.access or tokens.problem):
            return Connection("not_connected")
        is_over = not tokens.refresh and tokens.renew_at is not None and clock.now_ms() >= tokens.renew_at
        spent = bool(tokens.problem) or (is_over and _is_by_person(ready))
        return Connection(
            "expired" if spent else "connected", tokens.problem, tokens.scope, row.connected_by, row.connected_at, row.renewed_at
        )

    def store_granted(self, scope: TenantScope, ready: OpenedIntegration, answer: TokenAnswer) -> None:
        """Inside a write: replace any stored tokens by those a person has just granted."""
        self._make_row(scope, ready.slug)
        now = clock.now_ms()
        values = {**self._values(scope, ready, answer, StoredTokens()), "connected_by": scope.actor, "connected_at": now}
        changed = scope.update(TokenRow, **values, generation=TokenRow.generation + 1)
        changed.where(TokenRow.integration_id == ready.slug).execute()

    def forget(self, scope: TenantScope, slug: str) -> bool:
        """Inside a write: delete the tokens; returns whether there were any."""
        return bool(scope.delete(TokenRow).where(TokenRow.integration_id == slug).execute())

    # -- renewal

    @contextmanager
    def lock(self, ready: OpenedIntegration, until: float) -> Iterator[bool]:
        """Hold the integration's lock in this process; yields False if the time is over."""
        with self._lock:
            lock = self._locks.setdefault((ready.tenant_id, ready.slug), threading.Lock())
        is_locked = lock.acquire(timeout=max(0.0, until - clock.monotonic()))
        try:
            yield is_locked
        finally:
            if is_locked:
                lock.release()

    def claim_lease(self, scope: TenantScope, slug: str, generation: int) -> str | None:
        """Lease the renewal of this generation's tokens; returns the owner's name, or None while another process has the lease."""
        owner, now = secrets.token_hex(8), clock.now_ms()

        def claim() -> bool:
            self._make_row(scope, slug)
            return LEASES.claim((scope.tenant_id, slug), generation, owner=owner, until=now + LEASE_MS, now=now)

        return owner if db.write(claim) else None

    def release_lease(self, scope: TenantScope, slug: str, generation: int, owner: str) -> None:
        """Release a lease without renewal."""
        db.write(lambda: LEASES.release((scope.tenant_id, slug), generation, owner=owner))

    def store(self, scope: TenantScope, ready: OpenedIntegration, before: StoredTokens, answer: TokenAnswer) -> None:
        """Store renewed tokens, unless others have been stored meanwhile."""
        values = self._values(scope, ready, answer, before)
        with suppress(LeaseLost):
            db.write(lambda: LEASES.settle((scope.tenant_id, ready.slug), before.generation, values))

    def mark_refused(self, scope: TenantScope, ready: OpenedIntegration, before: StoredTokens, problem: str) -> None:
        """Record that the provider no longer accepts these tokens, so that it is not asked again."""
        line = Line(clock.now_ms(), "warn", "integration", f"{ready.slug}: {problem}", {"connection": "expired"})

        def mark() -> None:
            LEASES.update((scope.tenant_id, ready.slug), before.generation, {"problem": problem[:500], "lease_until": 0})
            write_lines(scope, [line])

        with suppress(LeaseLost):
            db.write(mark)

    def _values(self, scope: TenantScope, ready: OpenedIntegration, answer: TokenAnswer, before: StoredTokens) -> dict[str, Any]:
        now = clock.now_ms()
        opened = {
            "access": answer.access_token,
            "refresh": answer.refresh_token or before.refresh,
            "scope": answer.scope or before.scope,
        }
        return {
            "audience": self.audience(ready),
            "sealed": self._sealer.seal(db.dump_json(opened).encode(), _context(scope, ready.slug)),
            "renew_at": None if answer.renew_in is None else now + int(answer.renew_in * 1000),
            "problem": "", "lease_until": 0, "renewed_at": now,
        }  # fmt: skip

    def _make_row(self, scope: TenantScope, slug: str) -> None:
        # Nothing is stored for an integration that was deleted meanwhile.
        nothing = self._sealer.seal(b'{"access": "", "refresh": "", "scope": ""}', _context(scope, slug))
        db.execute(
            "INSERT INTO integration_token (tenant_id, integration_id, audience, sealed, generation, problem, lease_owner, "
            "lease_until, connected_by) SELECT tenant_id, id, '', ?, 0, '', '', 0, '' FROM integration "
            "WHERE tenant_id = ? AND id = ? ON CONFLICT (tenant_id, integration_id) DO NOTHING",
            (nothing, scope.tenant_id, slug),
        )


@dataclass(frozen=True)
class CallTokens:
    """The tokens of one integration during one call; tokens handed out are redacted from the call's output."""

    keeper: TokenStore
    ready: OpenedIntegration
    oauth: OAuth
    client: EgressClient

    def access_token(self, refused: str, until: float) -> str:
        """See `Tokens`; AuthError if there is none and a person would have to connect first."""
        scope = TenantScope(self.ready.tenant_id, "system")
        token = self._find(scope, refused)
        while token is None:
            with self.keeper.lock(self.ready, until) as is_locked:
                token = self._find(scope, refused) or (self._renew(scope) if is_locked else None)
            if token is None:
                _wait_for_others(self.ready, until)
        self.ready.redactor.learn(token)
        return token

    def _find(self, scope: TenantScope, refused: str) -> str | None:
        """The stored token; None if it must be renewed."""
        tokens = self.keeper.load(scope, self.ready)
        if tokens.problem:
            raise AuthError(f"{self.ready.slug} is no longer connected: {tokens.problem}")
        if tokens.is_good(refused, clock.now_ms()):
            return tokens.access
        if self.oauth.grant == "authorization_code" and not tokens.refresh:
            problem = "has expired and cannot be renewed; connect it again" if tokens.access else "is missing; connect it first"
            raise AuthError(f"The connection of {self.ready.slug} {problem} (console, Integrations, {self.ready.slug}).")
        return None

    def _renew(self, scope: TenantScope) -> str | None:
        """Renew the token and store it before use; None if another process is renewing it, or has renewed it."""
        before = self.keeper.load(scope, self.ready)
        owner = self.keeper.claim_lease(scope, self.ready.slug, before.generation)
        if owner is None:
            return None
        try:
            answer = self._ask(before)
        except GrantRefused as error:
            self.ready.redactor.learn(before.refresh)
            if self.keeper.load(scope, self.ready).generation == before.generation:
                self.keeper.mark_refused(scope, self.ready, before, error.message)
                raise
            return None
        except BaseException:
            self.keeper.release_lease(scope, self.ready.slug, before.generation, owner)
            raise
        self.keeper.store(scope, self.ready, before, answer)
        return answer.access_token

    def _ask(self, before: StoredTokens) -> TokenAnswer:
        # Not limited by the call's deadline: an answer that is not read may contain the only refresh token.
        http = BoundHttp(self.client, clock.monotonic() + ASK_SECONDS)
        return request_by_refresh(http, self.oauth, before.refresh) if before.refresh else request_by_client(http, self.oauth)


@dataclass
class TrialTokens:
    """Tokens for unsaved settings under test: requested once, never stored."""

    ready: OpenedIntegration
    oauth: OAuth
    client: EgressClient
    token: str = field(default="", repr=False)

    def access_token(self, refused: str, until: float) -> str:
        """See `Tokens`; AuthError if a person must allow access first, which needs saved settings."""
        if self.oauth.grant == "authorization_code":
            raise AuthError("A person must allow access first: save these settings, connect the integration, then test it.")
        if self.token in ("", refused):
            self.token = request_by_client(BoundHttp(self.client, until), self.oauth).access_token
            self.ready.redactor.learn(self.token)
        return self.token


def _wait_for_others(ready: OpenedIntegration, until: float) -> None:
    if clock.monotonic() + _POLL_S >= until:
        raise TransientError(f"The token of {ready.slug} was not renewed in time; the call can be repeated.")
    _pause.wait(_POLL_S)


_pause = threading.Event()


def _is_by_person(ready: OpenedIntegration) -> bool:
    return bool(ready.auth.get("grant") == "authorization_code")


def _context(scope: TenantScope, slug: str) -> str:
    return f"{scope.tenant_id}/integration/{slug}/token"
