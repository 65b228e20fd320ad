"""The keys with which the appliance signs audit trails: Ed25519, made at first use, the private part sealed with the master key.

The newest key signs.  A rotation makes another and deletes the private part of the one before, whose public part stays, so that
what it has signed can still be verified.  A key is named by its fingerprint, SHA-256 of its public part in DER
(SubjectPublicKeyInfo).
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

_FORMAT = serialization.PublicFormat.SubjectPublicKeyInfo
_BLOCK = re.compile(rb"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", re.DOTALL)


@dataclass(frozen=True)
class AuditPublicKey:
    """The public part of a key in PEM; `retired_at` is None for the key that signs now."""

    fingerprint: str
    pem: str
    made_at: int
    retired_at: int | None


@dataclass(frozen=True)
class SigningKey:
    """The key that signs now."""

    fingerprint: str
    private: Ed25519PrivateKey

    def sign(self, content: bytes) -> str:
        """The signature in base64."""
        return base64.b64encode(self.private.sign(content)).decode()


class AuditKeys:
    """The signing keys of this appliance."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def current(self) -> SigningKey:
        """The key that signs now, made if there is none yet; not inside a write."""
        row = _newest()
        if row is None:
            db.write(partial(self._make, 1))
            row = _newest()
        if row is None:
            raise NotFound("the database has no key that signs audit trails; restore the table audit_key from a backup")
        number, fingerprint, sealed = row
        return SigningKey(fingerprint, Ed25519PrivateKey.from_private_bytes(self._sealer.open(sealed, seal_context(number))))

    def rotate(self, scope: TenantScope) -> str:
        """Make another key current, and delete the private part of the one before; returns its fingerprint.

        `scope` is that of the appliance, in whose audit trail the rotation is recorded.
        """
        self.current()
        return db.write(partial(self._rotate, scope))

    def _rotate(self, scope: TenantScope) -> str:
        ((number, previous),) = db.rows("SELECT number, fingerprint FROM audit_key ORDER BY number DESC LIMIT 1")
        self._make(number + 1)
        db.execute("UPDATE audit_key SET sealed = NULL WHERE number <= ?", (number,))
        ((fingerprint,),) = db.rows("SELECT fingerprint FROM audit_key WHERE number = ?", (number + 1,))
        audit.record(scope, "audit.key_rotate", fingerprint, {"previous": previous})
        return str(fingerprint)

    def _make(self, number: int) -> None:
        """Inside a write: add a key, unless another process has added the one of this number."""
        private = Ed25519PrivateKey.generate()
        sealed = self._sealer.seal(private.private_bytes_raw(), seal_context(number))
        sql = (
            "INSERT INTO audit_key (number, fingerprint, public_key, sealed, made_at) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (number) DO NOTHING"
        )
        public = private.public_key()
        pem = public.public_bytes(serialization.Encoding.PEM, _FORMAT).decode()
        db.execute(sql, (number, fingerprint_of(public), pem, sealed, clock.now_ms()))


def seal_context(number: int) -> str:
    """What the sealed private part is bound to."""
    return f"appliance/audit-key/{number}"


def fingerprint_of(key: Ed25519PublicKey) -> str:
    """SHA-256 of the public key in DER, as hexadecimal digits."""
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, _FORMAT)).hexdigest()


def list_audit_keys() -> list[AuditPublicKey]:
    """The public parts of all keys, the current one first; empty before the first signature."""
    keys, retired_at = list[AuditPublicKey](), None
    for fingerprint, pem, made_at in db.rows("SELECT fingerprint, public_key, made_at FROM audit_key ORDER BY number DESC"):
        keys.append(AuditPublicKey(fingerprint, pem, made_at, retired_at))
        retired_at = made_at
    return keys


def public_keys_file() -> str:
    """All public keys as PEM, the current one first, each below a line with its fingerprint and its time."""
    return "".join(f"{_describe(key)}\n{key.pem}" for key in list_audit_keys())


def _describe(key: AuditPublicKey) -> str:
    end = f" until {clock.rfc3339(key.retired_at)}" if key.retired_at else ""
    return f"# {key.fingerprint} signs audit trails from {clock.rfc3339(key.made_at)}{end}"


def read_public_keys(pem: bytes) -> Mapping[str, Ed25519PublicKey]:
    """The Ed25519 keys of a PEM file by their fingerprints; ValidationFailed if there is none."""
    keys = {}
    for block in _BLOCK.findall(pem):
        try:
            key = serialization.load_pem_public_key(block)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise ValidationFailed(Sentence("a public key of the file cannot be read: %(reason)s", reason=str(error))) from error
        if isinstance(key, Ed25519PublicKey):
            keys[fingerprint_of(key)] = key
    if not keys:
        raise ValidationFailed("the file has no Ed25519 public key in PEM; `gos audit key` prints that of an appliance")
    return keys


def _newest() -> tuple[int, str, bytes] | None:
    rows = db.rows("SELECT number, fingerprint, sealed FROM audit_key WHERE sealed IS NOT NULL ORDER BY number DESC LIMIT 1")
    return (int(rows[0][0]), str(rows[0][1]), bytes(rows[0][2])) if rows else None
