"""Sealing of secrets (AES-256-GCM) and keyed digests, under one key file that the appliance made itself."""

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
    """Seals bytes so that only this appliance opens them, and only in the context they were sealed for.

    Format: one version byte, 12 random bytes of nonce, AES-256-GCM ciphertext with tag (NIST SP 800-38D);
    the context (for example `tenant/secret/name`) is authenticated, so a sealed value moved elsewhere does not open.
    """

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(hashlib.sha256(b"gos seal" + key).digest())
        self._digest_key = hashlib.sha256(b"gos digest" + key).digest()

    def seal(self, value: bytes, context: str) -> bytes:
        """Ciphertext of `value`, bound to `context`."""
        nonce = os.urandom(12)
        return _FORMAT + nonce + self._aead.encrypt(nonce, value, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """The value again; ConfigInvalid when the key file, the context or the bytes are not the ones of the sealing."""
        try:
            if sealed[:1] != _FORMAT or len(sealed) < SHORTEST:
                raise InvalidTag
            return self._aead.decrypt(sealed[1:13], sealed[13:], context.encode())
        except InvalidTag as error:
            raise ConfigInvalid(Sentence(
                "the sealed value %(context)s does not open: restore the key file that belongs to this database",
                context=repr(context),
            )) from error

    def digest(self, value: bytes) -> bytes:
        """Keyed SHA-256 (HMAC) of a credential, for storing and comparing it without keeping it."""
        return hmac.digest(self._digest_key, value, "sha256")


def load_or_make_key(path: Path) -> bytes:
    """The 32 bytes of the key file; made with mode 0600 when there is none yet.

    It appears whole or not at all, so that processes that start together agree on one.
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
        raise ConfigInvalid(Sentence("%(path)s does not hold a 32-byte key in base64; restore it from the backup", path=path))
    return key
