"""Passkeys (Web Authentication, level 3) of the base host, which is the only origin where they are created and used.

A tenant's console is on a host of its own.  Browsers let it use the passkeys of the base domain only if that is no public suffix,
and `localhost` is one; so every ceremony takes place on the base host, to which the console redirects.
"""

import base64
import ipaddress
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from cryptography.exceptions import UnsupportedAlgorithm

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, Conflict
from appliance.core.texts import mark_error
from appliance.tenants.models import SecondFactorRow, UsedChallengeRow

from . import factors
from .problems import FactorRefused, ProofExpired

LIFETIME_MS = 10 * 60_000
LONGEST_RESPONSE = 64 << 10
EXPIRED = mark_error("this request has expired or was used already; try again")
REFUSED = mark_error("this passkey was not accepted; use one of this account, or another way to prove who you are")
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, struct.error, UnsupportedAlgorithm)


@dataclass(frozen=True)
class Ceremony:
    """What the browser needs to create or use a passkey: options for its API, and a token to send back with the response."""

    options: Mapping[str, Any]
    token: str


@dataclass(frozen=True)
class Assertion:
    """A valid signature of a passkey, which `accept` uses up; `is_verified` if the device has verified the person."""

    factor_id: str
    user_id: str
    challenge: str
    counter: int
    is_verified: bool


class Passkeys:
    """Creates and checks passkeys for the base host."""

    def __init__(self, config: Config, sealer: Sealer) -> None:
        self._host, self._origin, self._sealer = config.domains.base, config.base_url, sealer

    @property
    def are_available(self) -> bool:
        """Whether browsers allow passkeys on the base host: they need a name, not an address."""
        try:
            ipaddress.ip_address(self._host)
        except ValueError:
            return True
        return False

    def _server(self) -> Any:
        from fido2.server import Fido2Server  # loaded when somebody uses a passkey
        from fido2.webauthn import AttestationConveyancePreference, PublicKeyCredentialRpEntity

        entity = PublicKeyCredentialRpEntity(name=f"Governed Operations Service on {self._host}", id=self._host)
        none = AttestationConveyancePreference.NONE
        return Fido2Server(entity, attestation=none, verify_origin=lambda origin: origin == self._origin)

    # -- create

    def begin_registration(self, user_id: str, login: str) -> Ceremony:
        """Options to create a passkey, other than those that the account has."""
        from fido2.webauthn import PublicKeyCredentialUserEntity

        user = PublicKeyCredentialUserEntity(name=login, id=user_id.encode(), display_name=login)
        known = [_descriptor(bytes(row.credential_id)) for row in _passkeys_of(user_id)]
        options, state = self._server().register_begin(
            user, known, resident_key_requirement="preferred", user_verification="preferred"
        )
        return self._ceremony(options, state, f"add/{user_id}")

    def finish_registration(self, user_id: str, token: str, response: str, name: str) -> None:
        """Store the passkey that the browser has created; ProofExpired, FactorRefused, Conflict."""
        state = self._open(token, f"add/{user_id}")
        try:
            parsed = _parse(response)
            data = self._server().register_complete(state, parsed).credential_data
            _check_own_page(parsed)
            values = {"credential_id": data.credential_id, "public_key": _encode_key(data.public_key), "counter": 0}
        except _MALFORMED as error:
            raise FactorRefused("the browser's answer was not accepted; try again") from error

        def store() -> None:
            self._use_challenge(state["challenge"])
            if SecondFactorRow.select().where(SecondFactorRow.credential_id == values["credential_id"]).exists():
                raise Conflict("this passkey has been added already")
            factors.add_factor(user_id, "passkey", name, values)

        db.write(store)

    # -- use

    def begin(self, purpose: str, user_id: str | None = None) -> Ceremony:
        """Options to prove something with a passkey: of this account, or of any, which then has to verify the person."""
        known = None if user_id is None else [_descriptor(bytes(row.credential_id)) for row in _passkeys_of(user_id)]
        verification = "required" if user_id is None else "preferred"
        options, state = self._server().authenticate_begin(known, user_verification=verification)
        return self._ceremony(options, state, purpose)

    def check(self, purpose: str, token: str, response: str, user_id: str | None = None) -> Assertion:
        """Check the signature of a passkey of this account, or of any; ProofExpired, FactorRefused.  `accept` has to follow."""
        state = self._open(token, purpose)
        try:
            parsed = _parse(response)
            row = SecondFactorRow.get_or_none(SecondFactorRow.credential_id == _decode(parsed["rawId"]))
            if row is None or row.user_id != (user_id or row.user_id):
                raise FactorRefused(REFUSED)
            handle = parsed["response"].get("userHandle")
            if handle and _decode(handle) != row.user_id.encode():
                raise FactorRefused(REFUSED)
            self._server().authenticate_complete(state, [_credential(row)], parsed)
            _check_own_page(parsed)
            data = _authenticator_data(parsed)
        except _MALFORMED as error:
            raise FactorRefused(REFUSED) from error
        return Assertion(row.id, row.user_id, state["challenge"], data.counter, data.is_user_verified())

    def accept(self, assertion: Assertion) -> None:
        """Inside a write: use up a signature; ProofExpired if it was used before, FactorRefused if the passkey was copied.

        Passkeys that count their signatures never repeat a number; those that are synchronised between devices send zero.
        """
        self._use_challenge(assertion.challenge)
        sql = "UPDATE second_factor SET counter = ?, used_at = ? WHERE id = ? AND (counter < ? OR (counter = 0 AND ? = 0))"
        values = (assertion.counter, clock.now_ms(), assertion.factor_id, assertion.counter, assertion.counter)
        if db.execute(sql, values) != 1:
            raise FactorRefused("this passkey seems to have been copied: its counter went back; remove it, and use another one")

    def _ceremony(self, options: Any, state: Mapping[str, Any], purpose: str) -> Ceremony:
        text = json.dumps([dict(state), clock.now_ms() + LIFETIME_MS]).encode()
        token = base64.urlsafe_b64encode(self._sealer.seal(text, _context(purpose))).decode("ascii")
        return Ceremony(dict(dict(options)["publicKey"]), token)

    def _open(self, token: str, purpose: str) -> Any:
        """The state of a ceremony that was begun for this purpose; ProofExpired."""
        try:
            state, until = json.loads(self._sealer.open(base64.urlsafe_b64decode(token), _context(purpose)))
        except (ValueError, ConfigInvalid) as error:
            raise ProofExpired(EXPIRED) from error
        if until < clock.now_ms():
            raise ProofExpired(EXPIRED)
        return state

    def _use_challenge(self, challenge: str) -> None:
        """Inside a write: ProofExpired if the challenge was used before."""
        now = clock.now_ms()
        UsedChallengeRow.delete().where(UsedChallengeRow.expires_at < now).execute()
        sql = "INSERT INTO used_challenge (digest, expires_at) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING"
        if db.execute(sql, (self._sealer.digest(challenge.encode()), now + LIFETIME_MS)) != 1:
            raise ProofExpired(EXPIRED)


def _context(purpose: str) -> str:
    return f"passkey/{purpose}"


def _passkeys_of(user_id: str) -> Sequence[SecondFactorRow]:
    is_passkey = (SecondFactorRow.user_id == user_id) & (SecondFactorRow.kind == "passkey")
    return list(SecondFactorRow.select().where(is_passkey).order_by(SecondFactorRow.created_at))


def _descriptor(credential_id: bytes) -> Any:
    from fido2.webauthn import PublicKeyCredentialDescriptor, PublicKeyCredentialType

    return PublicKeyCredentialDescriptor(type=PublicKeyCredentialType.PUBLIC_KEY, id=credential_id)


def _encode_key(key: Any) -> bytes:
    from fido2 import cbor

    return bytes(cbor.encode(dict(key)))


def _credential(row: SecondFactorRow) -> Any:
    from fido2 import cbor
    from fido2.cose import CoseKey
    from fido2.webauthn import Aaguid, AttestedCredentialData

    key = CoseKey.parse(cast(Mapping[int, Any], cbor.decode(bytes(row.public_key))))
    return AttestedCredentialData.create(Aaguid.NONE, bytes(row.credential_id), key)


def _authenticator_data(response: Any) -> Any:
    from fido2.webauthn import AuthenticatorData

    return AuthenticatorData(_decode(response["response"]["authenticatorData"]))


def _check_own_page(response: Any) -> None:
    """ValueError if the passkey was used in a frame of another site."""
    if json.loads(_decode(response["response"]["clientDataJSON"])).get("crossOrigin", False) is not False:
        raise ValueError("the passkey was used in a frame of another site")


def _parse(response: str) -> Any:
    """The browser's response; ValueError or TypeError if it is too long or no JSON object."""
    if len(response) > LONGEST_RESPONSE:
        raise ValueError("the response is too long")
    parsed = json.loads(response)
    if not isinstance(parsed, dict):
        raise TypeError("the response is no object")
    return parsed


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(f"{text}{'=' * (-len(text) % 4)}")
