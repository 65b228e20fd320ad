"""Manages LLM profiles with sealed keys, calls models with fallbacks, and reports usage."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.network import resolving_for
from appliance.core import clock, ids, logs
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import (
    AlreadyExists,
    ApplianceError,
    BudgetExceeded,
    ConnectorFailed,
    NotFound,
    ValidationFailed,
    VersionConflict,
)
from appliance.core.events import hub
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.tenants.grants import SecretDestination, host_of, secret_bindings

from . import usage
from .client import OpenProfile
from .conversation import Conversation, converse
from .generation import Connection, Generated, Generation, patterns_of
from .models import ProfileRow
from .prompt import Message, Prompt
from .usage import DAY_MS, Origin, UsageSum

if TYPE_CHECKING:
    from .profile import Budgets, Profile

__all__ = [
    "Conversation", "Generated", "LanguageModels", "Origin", "Prompt", "StoredProfile", "Trial", "Usage",
]  # fmt: skip

OpenSecret = Callable[[TenantScope, str], str]
KEEP: Literal[True] = True
KeyChange = str | Literal[True] | None
MAX_KEY = 10_000
TRIAL_SECONDS = 60.0
TRIAL_PROMPT = "Answer with the one word: ready"
_REFERENCE = re.compile(r"=\s*secrets\.([A-Za-z_]\w{0,62})\s*", re.ASCII)
_HISTORY_DAYS = 31
_NONE: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class StoredProfile:
    """A stored profile without its key: `key_at` is when the key was sealed, `reference` the secret used as the key."""

    slug: str
    profile: "Profile"
    key_at: int | None
    reference: str | None
    version: int
    created_at: int
    updated_at: int


@dataclass(frozen=True)
class Usage:
    """The usage of a profile by UTC days; `in_flight` is the most that calls in progress may use."""

    day: UsageSum
    month: UsageSum
    in_flight: UsageSum
    days: list[tuple[str, UsageSum]]
    budgets: "Budgets"
    currency: str | None


@dataclass(frozen=True)
class Trial:
    """The result of a test question: the answer or the error (`message`), the usage and the duration in milliseconds."""

    ok: bool
    message: str
    used: UsageSum
    ms: int


@dataclass(frozen=True)
class ProfileCreated:
    """A profile was created.  Published inside the write."""

    scope: TenantScope
    slug: str


class LanguageModels:
    """LLM profiles and calls to their models.  `open_secret` returns a tenant's secret by name, or raises NotFound."""

    def __init__(self, egress: Egress, sealer: Sealer, open_secret: OpenSecret) -> None:
        self._egress, self._sealer, self._open_secret = egress, sealer, open_secret

    # -- profiles

    def list_profiles(self, scope: TenantScope, page: PageRequest) -> Page[StoredProfile]:
        """List the tenant's profiles."""
        fields = {"id": ProfileRow.id, "created_at": ProfileRow.created_at}
        return paginate(scope.select(ProfileRow), page, fields, default="id").map(_to_stored)

    def get_profile(self, scope: TenantScope, slug: str) -> StoredProfile:
        """Get a profile; NotFound."""
        return _to_stored(scope.get(ProfileRow, id=slug))

    def create_profile(self, scope: TenantScope, slug: str, profile: "Profile", key: str | None) -> StoredProfile:
        """Create a profile with the provider's `key` or `= secrets.<name>`; executions waiting for it continue.  AlreadyExists."""
        ids.check_slug(slug, pointer="/slug")
        now = clock.now_ms()

        def insert() -> StoredProfile:
            if scope.find(ProfileRow, id=slug) is not None:
                raise AlreadyExists(Sentence("there is an LLM profile %(slug)s already", slug=repr(slug)), pointer="/slug")
            values = self._key_columns(scope, (slug, profile), key, now)
            scope.insert(
                ProfileRow, id=slug, settings=profile.model_dump(), version=1, created_at=now, updated_at=now, **values
            )
            audit.record(scope, "llm-profile.create", slug, {"kind": profile.kind, "model": profile.model})
            hub.publish(ProfileCreated(scope, slug))
            return self.get_profile(scope, slug)

        return db.write(insert)

    def put_profile(
        self, scope: TenantScope, slug: str, profile: "Profile", key: KeyChange, *, if_version: int | None = None
    ) -> tuple[StoredProfile, bool]:
        """Create or replace a profile, and return it with whether it is new.  KEEP keeps the key, None removes it.

        VersionConflict; ValidationFailed if a kept key would be sent to another address; ScopeMissing for a secret that is not
        bound to this address.
        """
        now = clock.now_ms()

        def put() -> tuple[StoredProfile, bool]:
            row = scope.find(ProfileRow, id=slug)
            if row is None:
                if key is KEEP:
                    raise ValidationFailed("a new profile has no stored key yet; send the key itself", pointer="/api_key")
                return self.create_profile(scope, slug, profile, key), True
            if if_version is not None and row.version != if_version:
                raise VersionConflict(Sentence(
                    "the LLM profile %(slug)s has changed to version %(version)s; read it again and repeat the change",
                    slug=slug, version=row.version,
                ))
            values = _keep_key(row, profile) if key is KEEP else self._key_columns(scope, (slug, profile), key, now)
            changes = {"settings": profile.model_dump(), "version": row.version + 1, "updated_at": now, **values}
            scope.update(ProfileRow, **changes).where(ProfileRow.id == slug).execute()
            audit.record(scope, "llm-profile.change", slug, {"kind": profile.kind, "model": profile.model})
            return self.get_profile(scope, slug), False

        return db.write(put)

    def delete_profile(self, scope: TenantScope, slug: str) -> None:
        """Delete a profile; its recorded usage stays.  NotFound."""

        def delete() -> None:
            scope.get(ProfileRow, id=slug)
            scope.delete(ProfileRow).where(ProfileRow.id == slug).execute()
            secret_bindings.delete_bindings_to(scope, slug, "llm-profile")
            audit.record(scope, "llm-profile.delete", slug)

        db.write(delete)

    def get_usage(self, scope: TenantScope, slug: str) -> Usage:
        """The usage of a profile today, this month and on each of the last 31 days; NotFound."""
        profile = self.get_profile(scope, slug).profile
        now = clock.now_ms()
        today = usage.day_of(now)
        with db.snapshot():
            return Usage(
                usage.used_since(scope, slug, today), usage.used_since(scope, slug, f"{today[:7]}-01"),
                usage.used_in_flight(scope, slug),
                usage.days_since(scope, slug, usage.day_of(now - (_HISTORY_DAYS - 1) * DAY_MS)),
                profile.budgets, profile.price.currency if profile.price else None,
            )  # fmt: skip

    def has_profile(self, scope: TenantScope, slug: str) -> bool:
        """Whether the tenant has a profile of this name."""
        return bool(db.rows("SELECT 1 FROM llm_profile WHERE tenant_id = ? AND id = ?", (scope.tenant_id, slug)))

    # -- asking

    def try_profile(self, scope: TenantScope, slug: str) -> Trial:
        """Ask the profile's model, without fallbacks, a short question, which counts as usage; NotFound."""
        ready, generated, started = self.open_profile(scope, slug), Generated(), clock.monotonic()
        client = EgressClient(self._egress)
        try:
            line = Connection(scope, client, ready, Origin(), started + TRIAL_SECONDS)
            with resolving_for(scope.tenant_id):
                generated.error = Generation(line, Prompt(slug, (Message("user", TRIAL_PROMPT),))).run(generated)
        finally:
            client.close()
        db.write(lambda: generated.settle(scope))
        message = str(generated.value) if generated.error is None else generated.error.message
        return Trial(generated.error is None, message[:500], generated.used, round((clock.monotonic() - started) * 1000))

    def generate(self, scope: TenantScope, prompt: Prompt, origin: Origin, ends: float) -> Generated:
        """Ask until there is a valid answer or `ends` (monotonic) is reached; errors are returned in the result.

        NotFound, before any call, if the profile does not exist.
        """

        def run(line: Connection, generated: Generated) -> ApplianceError | None:
            return Generation(line, prompt).run(generated)

        return self._run_with_fallbacks(scope, prompt.profile, origin, ends, run)

    def converse(self, scope: TenantScope, conversation: Conversation, origin: Origin, ends: float) -> Generated:
        """The model's next turn; `value` is the Reply with its answer or tool calls, or None with an `error`.

        The caller runs `settle` in the write that records the turn.  NotFound, before any call, if the profile does not exist.
        """
        return self._run_with_fallbacks(scope, conversation.profile, origin, ends, partial(converse, conversation))

    def _run_with_fallbacks(
        self,
        scope: TenantScope,
        slug: str,
        origin: Origin,
        ends: float,
        run: Callable[[Connection, Generated], ApplianceError | None],
    ) -> Generated:
        """Run with the profile, or with the first of its fallbacks that answers."""
        first = self.open_profile(scope, slug)
        generated = Generated()
        ready, extra_patterns = first, _NONE
        for other in (None, *first.profile.fallbacks):
            if other is not None:
                if not isinstance(generated.error, ConnectorFailed | BudgetExceeded):
                    break
                if not self.has_profile(scope, other):
                    continue
                ready, extra_patterns = self.open_profile(scope, other), patterns_of(first.profile)
            client = EgressClient(self._egress)
            try:
                with resolving_for(scope.tenant_id):
                    generated.error = run(Connection(scope, client, ready, origin, ends, extra_patterns), generated)
            finally:
                client.close()
        return generated

    def open_profile(self, scope: TenantScope, slug: str) -> OpenProfile:
        """The profile with its unsealed key, ready for calls; NotFound."""
        row = scope.find(ProfileRow, id=slug)
        if row is None:
            raise NotFound(
                Sentence("there is no LLM profile %(slug)s; create it with POST /api/v1/llm-profiles", slug=repr(slug))
            )
        key, profile = "", _read_profile(row)
        if row.reference is not None:
            place = destination_of(slug, profile)
            if secret_bindings.find_unbound(scope, [row.reference], place):
                raise secret_bindings.build_not_bound(row.reference, place)
            key = self._open_secret(scope, row.reference)
        elif row.sealed is not None:
            key = self._sealer.open(bytes(row.sealed), _context(scope, slug)).decode()
            logs.remember_secret(key)
        return OpenProfile(slug, profile, key)

    def _key_columns(self, scope: TenantScope, at: tuple[str, "Profile"], key: str | None, now: int) -> dict[str, object]:
        """The columns that store a key; inside a write, because a referenced secret is bound to the profile's address."""
        slug, profile = at
        if key is None:
            return {"sealed": None, "reference": None, "key_at": None}
        if key.startswith("="):
            match = _REFERENCE.fullmatch(key)
            if match is None:
                raise ValidationFailed("`api_key` must be the key itself or = secrets.<name>", pointer="/api_key")
            place = destination_of(slug, profile)
            unbound = secret_bindings.require_bindable(scope, [match[1]], place, pointer="/api_key")
            secret_bindings.bind_use(scope, unbound, place)
            return {"sealed": None, "reference": match[1], "key_at": None}
        if not 1 <= len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
            raise ValidationFailed(
                Sentence("the key must be one line of 1 to %(max_key)s printable ASCII characters", max_key=MAX_KEY),
                pointer="/api_key",
            )
        return {"sealed": self._sealer.seal(key.encode(), _context(scope, slug)), "reference": None, "key_at": now}


def destination_of(slug: str, profile: "Profile") -> SecretDestination:
    """The destination that the profile sends its key to."""
    digest = hashlib.sha256(f"{profile.kind} {profile.address}".encode()).hexdigest()
    return SecretDestination("llm-profile", slug, digest, host_of(profile.address))


def _context(scope: TenantScope, slug: str) -> str:
    return f"{scope.tenant_id}/llm-profile/{slug}"


def _keep_key(row: ProfileRow, profile: "Profile") -> dict[str, object]:
    """The columns that keep the stored key, which are none; ValidationFailed if the key would be sent to another address."""
    before = _read_profile(row)
    if row.sealed is None and row.reference is None:
        raise ValidationFailed("the profile has no stored key; send the key itself", pointer="/api_key")
    if (before.kind, before.address) != (profile.kind, profile.address):
        raise ValidationFailed("the change would send the stored key to another address; send the key again", pointer="/api_key")
    return {}


def _read_profile(row: ProfileRow) -> "Profile":
    from .profile import Profile

    return Profile.model_validate(row.settings)


def _to_stored(row: ProfileRow) -> StoredProfile:
    profile = _read_profile(row)
    return StoredProfile(
        slug=row.id, profile=profile, key_at=row.key_at, reference=row.reference, version=row.version, created_at=row.created_at,
        updated_at=row.updated_at,
    )
