"""Checks second factors, says who needs one, and when a fresh proof is due."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.tenants import SignedIn, people
from appliance.tenants.models import Person, SecondFactorRow
from appliance.tenants.sign_in import Attempt, Attempts, sessions
from appliance.tenants.sign_in.counts import Counts, MemoryCounts

from . import apps, factors, recovery_codes
from .attempts import PASSKEY, FactorAttempts
from .passkeys import Ceremony, Passkeys
from .problems import FactorRefused

Due = Literal["", "prove", "add"]
MINUTE_MS = 60_000
SIGN_IN = "sign-in"
_PASSKEY_SIGN_IN = ("passkey sign-in", "")
_NEEDY = """
SELECT 1 FROM membership AS m WHERE m.user_id = ? AND ({roles})
AND NOT EXISTS (SELECT 1 FROM second_factor AS f WHERE f.user_id = m.user_id) LIMIT 1"""


@dataclass(frozen=True)
class Methods:
    """How an account can prove who it is, beyond its password; `recovery_codes` is the number of unused ones.

    `is_needed` if the account has a factor, even one that cannot be used here.
    """

    is_needed: bool
    passkeys: bool
    apps: bool
    recovery_codes: int


class SecondFactors:
    """The second factors of every account."""

    def __init__(self, config: Config, sealer: Sealer, open_counts: Callable[[str], Counts] = MemoryCounts) -> None:
        self._settings, self._sealer, self._issuer = config.second_factor, sealer, config.domains.base
        self._sign_in = config.sign_in
        self.passkeys = Passkeys(config, sealer)
        self._attempts = FactorAttempts(open_counts)
        self._addresses = Attempts(free=20, first=1.0, longest=60.0, counts=open_counts("passkey sign-in"))

    # -- who needs what

    def methods_of(self, user_id: str) -> Methods:
        """How this account can prove who it is."""
        rows = SecondFactorRow.select(SecondFactorRow.kind).where(SecondFactorRow.user_id == user_id).distinct()
        kinds = {row.kind for row in rows}
        left = recovery_codes.count_left(user_id) if kinds else 0
        return Methods(bool(kinds), "passkey" in kinds and self.passkeys.are_available, "totp" in kinds, left)

    def must_add_factor(self, person: SignedIn) -> bool:
        """Whether a role of this person needs a factor, there is none, and no identity provider stands for it in this sign-in."""
        if not self.needs_factor(person.user_id):
            return False
        return not db.rows("SELECT 1 FROM provider_sign_in WHERE root = ? AND strong", (person.root,))

    def needs_factor(self, user_id: str) -> bool:
        """Whether a role of this account needs a factor, and there is none."""
        required = self._settings.required_for
        if not required:
            return False
        roles = [role for role in required if role != "approver"]
        tests = [f"m.role IN ({', '.join('?' * len(roles))})"] if roles else []
        tests += ["m.approver <> 0"] if "approver" in required else []
        return bool(db.rows(_NEEDY.format(roles=" OR ".join(tests)), (user_id, *roles)))

    def is_fresh(self, person: SignedIn) -> bool:
        """Whether the last proof in this sign-in still lasts."""
        return person.proven_at > clock.now_ms() - self._settings.step_up_minutes * MINUTE_MS

    def find_due(self, person: SignedIn, *, asks_password: bool = False) -> Due:
        """What a sensitive action waits for: a fresh proof, a factor that this person needs and has not, or nothing.

        `asks_password` for an action that an account without a second factor confirms by its password, whatever the setting says.
        """
        if self.is_fresh(person):
            return ""
        if factors.has_factor(person.user_id):
            return "prove"
        if self.needs_factor(person.user_id):
            return "add"
        is_asked = asks_password or self._settings.step_up_password
        return "prove" if is_asked and self.takes_password(person.user_id) else ""

    def takes_password(self, user_id: str) -> bool:
        """Whether this account proves who it is with its password, as it has nothing else, and may sign in with it."""
        if not people.has_password(user_id) or factors.has_factor(user_id):
            return False
        emergency = people.normalize_login(self._sign_in.break_glass)
        return self._sign_in.local_accounts or people.get_user(user_id).login == emergency

    # -- proofs

    def prove_by_code(self, attempt: Attempt, user_id: str, text: str) -> str:
        """Use a code of an app, or a recovery code; returns which it was.  FactorRefused, RateLimited."""
        is_recovery, code = recovery_codes.is_recovery_code(text), "".join(text.split())
        kind, use = ("recovery_code", recovery_codes.use_code) if is_recovery else ("totp", apps.use_code)
        self._attempts.begin(attempt, kind)
        if not db.write(lambda: use(self._sealer, user_id, code)):
            self._attempts.fail(attempt, kind)
            raise FactorRefused("this code is wrong, or was used already; wait until your app shows the next one")
        self._attempts.succeed(attempt)
        return kind

    def prove_by_passkey(self, attempt: Attempt, purpose: tuple[str, str], token: str, response: str) -> str:
        """Use a passkey; `purpose` is what it was asked for and the account.  FactorRefused, ProofExpired, RateLimited."""
        self._attempts.begin(attempt, PASSKEY)
        what, user_id = purpose
        try:
            assertion = self.passkeys.check(what, token, response, user_id)
            db.write(lambda: self.passkeys.accept(assertion))
        except FactorRefused:
            self._attempts.fail(attempt, PASSKEY)
            raise
        self._attempts.succeed(attempt)
        return PASSKEY

    def begin_sign_in(self) -> Ceremony:
        """Options to sign in with a passkey."""
        return self.passkeys.begin(SIGN_IN)

    def find_by_passkey(self, address: str, token: str, response: str) -> Person:
        """The person whose passkey has verified them, which replaces password and factor.

        FactorRefused, ProofExpired, RateLimited, AccountDisabled.  An account without a password belongs to an identity provider,
        which alone decides whether it may sign in.
        """
        self._addresses.begin(_PASSKEY_SIGN_IN, address)
        assertion = self.passkeys.check(SIGN_IN, token, response)
        person: Person = Person.get_by_id(assertion.user_id)
        try:
            if not assertion.is_verified:
                raise FactorRefused("this passkey did not verify you; sign in with your password")
            db.write(lambda: self.passkeys.accept(assertion))
        except FactorRefused:
            self._attempts.fail(Attempt(person.login, address), PASSKEY)
            raise
        self._addresses.succeed(_PASSKEY_SIGN_IN, address)
        people.check_enabled(person.id)
        if not person.password_hash:
            raise FactorRefused("this account signs in with its identity provider")
        return person

    # -- add

    def begin_app(self, user_id: str, login: str) -> apps.NewApp:
        """The secret of a new app."""
        return apps.begin(self._sealer, user_id, login, self._issuer)

    def continue_app(self, user_id: str, login: str, token: str) -> apps.NewApp:
        """The secret of a form that was sent with a wrong code; ProofExpired."""
        return apps.describe(self._sealer, user_id, (login, self._issuer), apps.open_token(self._sealer, user_id, token))

    def finish_app(self, person: SignedIn, token: str, name: str, code: str) -> list[str]:
        """Store the app if it shows this code; returns recovery codes, if it is the first factor.  ValidationFailed."""
        secret, name = apps.open_token(self._sealer, person.user_id, token), factors.check_name(name)
        plain = "".join(code.split())
        return self._add(person, lambda: apps.finish(self._sealer, person.user_id, secret, name, plain))

    def finish_passkey(self, person: SignedIn, token: str, response: str, name: str) -> list[str]:
        """Store a passkey; returns recovery codes, if it is the first factor.  FactorRefused, ProofExpired, ValidationFailed."""
        name = factors.check_name(name)
        return self._add(person, lambda: self.passkeys.finish_registration(person.user_id, token, response, name))

    def _add(self, person: SignedIn, add: Callable[[], None]) -> list[str]:
        codes = recovery_codes.make_codes()

        def store() -> list[str]:
            is_first = not factors.has_factor(person.user_id)
            add()
            sessions.record_proof(person.user_id, person.root)
            if is_first:
                recovery_codes.store_codes(self._sealer, person.user_id, codes)
            return codes if is_first else []

        return db.write(store)

    def replace_recovery_codes(self, user_id: str) -> list[str]:
        """Ten new recovery codes, which replace the earlier ones; Conflict without a factor."""
        if not factors.has_factor(user_id):
            raise Conflict("recovery codes need a passkey or an app; add one first")
        return recovery_codes.replace_codes(self._sealer, user_id)
