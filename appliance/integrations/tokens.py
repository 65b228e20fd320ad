"""Tokens of OAuth 2 that integrations hold: sealed, renewed by one at a time over all processes, kept before they are used.

A row per integration.  Whoever finds its token spent takes the row's lease, asks the provider and stores the answer
under the generation it began with; everybody else waits for that.  Tokens belong to an audience, a digest of whom the
settings name: when that changes they are not sent any more.
"""

import json
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from appliance.connectors import OAuth, oauth_of
from appliance.connectors.context import BoundHttp
from appliance.connectors.contract import AuthError, TransientError
from appliance.connectors.egress import EgressClient
from appliance.connectors.oauth import ASK_SECONDS, GrantRefused, TokenAnswer, Tokens, by_client, by_refresh
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.integrations.connections import Ready
from appliance.integrations.models import TokenRow
from appliance.integrations.settings import secret_targets, value_at
from appliance.monitor import Line, write_lines

LEASE_MS = int(ASK_SECONDS * 1000) + 10_000
_LOOK_AGAIN_S = 0.1
# What proves the client may change without the tokens going to anybody else.
_NO_AUDIENCE = ("client_secret", "client_auth")

State = Literal["connected", "not_connected", "expired"]


@dataclass(frozen=True)
class Connection:
    """How an integration stands with its provider; times in epoch ms, `scope` is what was granted."""

    state: State
    problem: str = ""
    scope: str = ""
    connected_by: str = ""
    connected_at: int | None = None
    renewed_at: int | None = None


@dataclass(frozen=True)
class Held:
    """The tokens of one generation; without any, texts are empty."""

    access: str = field(default="", repr=False)
    refresh: str = field(default="", repr=False)
    scope: str = ""
    generation: int = 0
    renew_at: int | None = None
    problem: str = ""

    def is_good(self, refused: str, now: int) -> bool:
        """Whether the access token may be used: there is one, it was not refused, and its end is not near."""
        return self.access not in ("", refused) and (self.renew_at is None or now < self.renew_at)


class TokenKeeper:
    """Keeps and renews the tokens of every integration; rows are shared by all processes."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._lock = threading.Lock()
        self._turns: dict[tuple[str, str], threading.Lock] = {}

    def tokens_of(self, ready: Ready, client: EgressClient) -> Tokens | None:
        """The tokens of one call; None when the integration's credentials are not of the kind oauth2."""
        oauth = oauth_of(ready.auth)
        if oauth is None:
            return None
        return TrialTokens(ready, oauth, client) if ready.is_trial else CallTokens(self, ready, oauth, client)

    def audience(self, ready: Ready) -> str:
        """Digest of whom the tokens are for."""
        auth = {name: value for name, value in ready.auth.items() if name not in _NO_AUDIENCE}
        targets = secret_targets(ready.installed.connector.settings_schema)
        told = [ready.installed.name, auth, [value_at(ready.settings, path) for path in targets]]
        return self._sealer.digest(json.dumps(told, sort_keys=True, default=str).encode()).hex()

    def held(self, scope: TenantScope, ready: Ready) -> Held:
        """What is stored for the integration's present audience."""
        row = scope.find(TokenRow, integration_id=ready.slug)
        if row is None:
            return Held()
        if row.audience != self.audience(ready):
            return Held(generation=row.generation)
        opened = json.loads(self._sealer.open(bytes(row.sealed), _context(scope, ready.slug)))
        return Held(opened["access"], opened["refresh"], opened["scope"], row.generation, row.renew_at, row.problem)

    def connection(self, scope: TenantScope, ready: Ready) -> Connection:
        """How the integration stands with its provider."""
        row, held = scope.find(TokenRow, integration_id=ready.slug), self.held(scope, ready)
        if row is None or not (held.access or held.problem):
            return Connection("not_connected")
        is_over = not held.refresh and held.renew_at is not None and clock.now_ms() >= held.renew_at
        spent = bool(held.problem) or (is_over and _is_by_person(ready))
        return Connection(
            "expired" if spent else "connected", held.problem, held.scope, row.connected_by, row.connected_at, row.renewed_at
        )

    def keep_granted(self, scope: TenantScope, ready: Ready, answer: TokenAnswer) -> None:
        """Inside a write: what a person has granted replaces whatever was held."""
        self._make_row(scope, ready.slug)
        now = clock.now_ms()
        values = {**self._values(scope, ready, answer, Held()), "connected_by": scope.actor, "connected_at": now}
        changed = scope.update(TokenRow, **values, generation=TokenRow.generation + 1)
        changed.where(TokenRow.integration_id == ready.slug).execute()

    def forget(self, scope: TenantScope, slug: str) -> bool:
        """Inside a write: hold no tokens any more; whether there were some."""
        return bool(scope.delete(TokenRow).where(TokenRow.integration_id == slug).execute())

    # -- renewal

    @contextmanager
    def turn(self, ready: Ready, until: float) -> Iterator[bool]:
        """One thread of this process at a time; false when the time is over."""
        with self._lock:
            lock = self._turns.setdefault((ready.tenant_id, ready.slug), threading.Lock())
        taken = lock.acquire(timeout=max(0.0, until - clock.monotonic()))
        try:
            yield taken
        finally:
            if taken:
                lock.release()

    def take_lease(self, scope: TenantScope, slug: str, generation: int) -> str | None:
        """The name under which the tokens of this generation may be renewed; None while another process does it."""
        owner, now = secrets.token_hex(8), clock.now_ms()

        def take() -> bool:
            self._make_row(scope, slug)
            taken = scope.update(TokenRow, lease_owner=owner, lease_until=now + LEASE_MS).where(
                TokenRow.integration_id == slug, TokenRow.generation == generation, TokenRow.lease_until <= now
            )
            return bool(taken.execute())

        return owner if db.write(take) else None

    def give_back(self, scope: TenantScope, slug: str, owner: str) -> None:
        """End a lease under which nothing was renewed."""
        ended = scope.update(TokenRow, lease_until=0).where(TokenRow.integration_id == slug, TokenRow.lease_owner == owner)
        db.write(ended.execute)

    def store(self, scope: TenantScope, ready: Ready, before: Held, answer: TokenAnswer) -> None:
        """Keep renewed tokens, unless others have been stored meanwhile."""
        values = self._values(scope, ready, answer, before)
        self._replace(scope, ready.slug, before, {**values, "generation": before.generation + 1})

    def mark_refused(self, scope: TenantScope, ready: Ready, before: Held, problem: str) -> None:
        """Keep that the provider honours these tokens no longer, so that nobody asks it again."""
        line = Line(clock.now_ms(), "warn", "integration", f"{ready.slug}: {problem}", {"connection": "expired"})

        def mark() -> None:
            if self._replace(scope, ready.slug, before, {"problem": problem[:500], "lease_until": 0}):
                write_lines(scope, [line])

        db.write(mark)

    def _replace(self, scope: TenantScope, slug: str, before: Held, values: Mapping[str, Any]) -> bool:
        query = scope.update(TokenRow, **values)
        query = query.where(TokenRow.integration_id == slug, TokenRow.generation == before.generation)
        return bool(db.write(query.execute))

    def _values(self, scope: TenantScope, ready: Ready, answer: TokenAnswer, before: Held) -> dict[str, Any]:
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
        # An integration that was deleted meanwhile keeps nothing.
        nothing = self._sealer.seal(b'{"access": "", "refresh": "", "scope": ""}', _context(scope, slug))
        db.execute(
            "INSERT INTO integration_token (tenant_id, integration_id, audience, sealed, generation, problem, lease_owner, "
            "lease_until, connected_by) SELECT tenant_id, id, '', ?, 0, '', '', 0, '' FROM integration "
            "WHERE tenant_id = ? AND id = ? ON CONFLICT (tenant_id, integration_id) DO NOTHING",
            (nothing, scope.tenant_id, slug),
        )


@dataclass(frozen=True)
class CallTokens:
    """The tokens of one integration during one call; what it hands out is blotted out of what the call says."""

    keeper: TokenKeeper
    ready: Ready
    oauth: OAuth
    client: EgressClient

    def access_token(self, refused: str, until: float) -> str:
        """See `Tokens`; AuthError when there is none, and none can be had without a person."""
        scope = TenantScope(self.ready.tenant_id, "system")
        token = self._find(scope, refused)
        while token is None:
            with self.keeper.turn(self.ready, until) as taken:
                token = self._find(scope, refused) or (self._renew(scope) if taken else None)
            if token is None:
                _wait_for_others(self.ready, until)
        self.ready.redactor.learn(token)
        return token

    def _find(self, scope: TenantScope, refused: str) -> str | None:
        """The token that is stored; None when it must be renewed."""
        held = self.keeper.held(scope, self.ready)
        if held.problem:
            raise AuthError(f"{self.ready.slug} lost its connection: {held.problem}")
        if held.is_good(refused, clock.now_ms()):
            return held.access
        if self.oauth.grant == "authorization_code" and not held.refresh:
            told = "has ended and cannot be renewed; connect it again" if held.access else "is missing: connect it first"
            raise AuthError(f"The connection of {self.ready.slug} {told} (console, Integrations, {self.ready.slug}).")
        return None

    def _renew(self, scope: TenantScope) -> str | None:
        """A fresh token, stored before it is handed out; None when another process is at it, or was quicker."""
        before = self.keeper.held(scope, self.ready)
        owner = self.keeper.take_lease(scope, self.ready.slug, before.generation)
        if owner is None:
            return None
        try:
            answer = self._ask(before)
        except GrantRefused as error:
            self.ready.redactor.learn(before.refresh)
            if self.keeper.held(scope, self.ready).generation == before.generation:
                self.keeper.mark_refused(scope, self.ready, before, error.message)
                raise
            return None
        except BaseException:
            self.keeper.give_back(scope, self.ready.slug, owner)
            raise
        self.keeper.store(scope, self.ready, before, answer)
        return answer.access_token

    def _ask(self, before: Held) -> TokenAnswer:
        # Not cut short by the call's deadline: an answer that nobody reads may hold the only refresh token there is.
        http = BoundHttp(self.client, clock.monotonic() + ASK_SECONDS)
        return by_refresh(http, self.oauth, before.refresh) if before.refresh else by_client(http, self.oauth)


@dataclass
class TrialTokens:
    """The tokens of settings that are only tried: asked for once, kept nowhere."""

    ready: Ready
    oauth: OAuth
    client: EgressClient
    held: str = field(default="", repr=False)

    def access_token(self, refused: str, until: float) -> str:
        """See `Tokens`; AuthError when a person has to allow access first, which takes settings that are kept."""
        if self.oauth.grant == "authorization_code":
            raise AuthError("A person has to allow access first: save these settings, connect, and test then.")
        if self.held in ("", refused):
            self.held = by_client(BoundHttp(self.client, until), self.oauth).access_token
            self.ready.redactor.learn(self.held)
        return self.held


def _wait_for_others(ready: Ready, until: float) -> None:
    if clock.monotonic() + _LOOK_AGAIN_S >= until:
        raise TransientError(f"The token of {ready.slug} was not renewed in time; the call may be made again.")
    _pause.wait(_LOOK_AGAIN_S)


_pause = threading.Event()


def _is_by_person(ready: Ready) -> bool:
    return bool(ready.auth.get("grant") == "authorization_code")


def _context(scope: TenantScope, slug: str) -> str:
    return f"{scope.tenant_id}/integration/{slug}/token"
