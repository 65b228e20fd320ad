"""Encryption of secrets (AES-256-GCM) and keyed digests, with the key file of the appliance."""

import base64
import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from appliance.core.sentences import Sentence

from .errors import ConfigInvalid

_FORMAT = b"\x01"
SHORTEST = 1 + 12 + 16


class Sealer:
    """Encrypts values with the key of this appliance, bound to a context.

    Format: one version byte, a random nonce of 12 bytes, AES-256-GCM ciphertext with tag (NIST SP 800-38D).  The context
    (for example `tenant/secret/name`) is authenticated, so that a sealed value cannot be moved elsewhere.
    """

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(hashlib.sha256(b"gos seal" + key).digest())
        self._digest = hmac.new(hashlib.sha256(b"gos digest" + key).digest(), digestmod=hashlib.sha256)

    def seal(self, value: bytes, context: str) -> bytes:
        """Encrypt the value, bound to the context."""
        nonce = os.urandom(12)
        return _FORMAT + nonce + self._aead.encrypt(nonce, value, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """Decrypt the value; ConfigInvalid when the key file, the context or the ciphertext does not match."""
        try:
            if sealed[:1] != _FORMAT or len(sealed) < SHORTEST:
                raise InvalidTag
            return self._aead.decrypt(sealed[1:13], sealed[13:], context.encode())
        except InvalidTag as error:
            raise ConfigInvalid(Sentence(
                "the sealed value %(context)s cannot be decrypted; restore the key file that belongs to this database",
                context=repr(context),
            )) from error

    def digest(self, value: bytes) -> bytes:
        """The HMAC-SHA256 of a credential, to store and compare instead of the credential itself."""
        digest = self._digest.copy()  # Keyed once, because every request with an API key is digested.
        digest.update(value)
        return digest.digest()


def load_or_make_key(path: Path) -> bytes:
    """The 32 bytes of the key file; creates it with mode 0600 if it does not exist.

    The file is created atomically, so that processes that start at the same time use the same key.
    """
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(base64.b64encode(secrets.token_bytes(32)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink()
    return _read_key(path)


def _read_key(path: Path) -> bytes:
    try:
        key = base64.b64decode(path.read_bytes().strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ConfigInvalid(Sentence("%(path)s does not contain a 32-byte key in base64; restore it from the backup", path=path))
    return key
