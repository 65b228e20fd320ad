"""Encryption of secrets (AES-256-GCM) and keyed digests, with the master keys of the appliance."""

import hashlib
import hmac
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

_WITHOUT_ID, _WITH_ID = b"\x01", b"\x02"
_ID_BYTES, _NONCE, _TAG = 8, 12, 16
PREFIX_BYTES = 1 + _ID_BYTES


def key_id(key: bytes) -> str:
    """The id of a master key, 16 hexadecimal digits: it names the key and tells nothing of it."""
    return hashlib.sha256(b"gos key id" + key).digest()[:_ID_BYTES].hex()


def first_digest_key(key: bytes) -> bytes:
    """The key of digests of an appliance whose first master key this is; it outlives that."""
    return hashlib.sha256(b"gos digest" + key).digest()


def seal_digest_key(key: bytes, digest_key: bytes) -> bytes:
    """The key of digests, sealed with a master key."""
    return Sealer(key).seal(digest_key, _digest_context(key))


def open_digest_key(key: bytes, sealed: bytes) -> bytes:
    """The key of digests; ConfigInvalid if another master key has sealed it."""
    return Sealer(key).open(sealed, _digest_context(key))


def _digest_context(key: bytes) -> str:
    return f"appliance/master-key/{key_id(key)}/digests"


def prefix_of(key: str) -> bytes:
    """How the values begin that are sealed with the master key of this id."""
    return _WITH_ID + bytes.fromhex(key)


def name_key(sealed: bytes) -> str | None:
    """The id of the master key with which a value is sealed; None for a value of the format without ids."""
    return sealed[1:PREFIX_BYTES].hex() if sealed[:1] == _WITH_ID else None


@dataclass(frozen=True)
class _Ring:
    """The ciphers by the id of their key, and the key that seals; None if there is none to seal with."""

    ciphers: Mapping[bytes, AESGCM]
    current: bytes | None


def _find_nothing(key: str) -> None:
    """There are no other keys."""


def _make_ciphers(keys: Iterable[bytes]) -> dict[bytes, AESGCM]:
    return {bytes.fromhex(key_id(key)): AESGCM(hashlib.sha256(b"gos seal" + key).digest()) for key in keys}


class Sealer:
    """Encrypts values with the current master key of this appliance, bound to a context; opens those of its other ones, too.

    Format 2: a version byte, the id of the key (8 bytes), a random nonce of 12 bytes, AES-256-GCM ciphertext with tag (NIST SP
    800-38D).  Format 1 lacks the id; nothing is sealed so any more.  The context (for example `tenant/secret/name`) is
    authenticated, so that a sealed value cannot be moved elsewhere.

    `find_key` is asked for a key by its id when a value needs one that is missing; `use_keys` may add it.
    """

    def __init__(self, key: bytes, *others: bytes, digest_key: bytes | None = None) -> None:
        keys = (key, *others)
        self._ring = _Ring(_make_ciphers(keys), bytes.fromhex(key_id(key)))
        self.find_key: Callable[[str], object] = _find_nothing
        self._digest = hmac.new(digest_key or first_digest_key(key), digestmod=hashlib.sha256)

    def use_keys(self, ids: Collection[str], current: str | None, new: Iterable[bytes] = ()) -> None:
        """From now on, open with the keys of these ids, which are there or among `new`, and seal with `current`; with None nothing
        can be sealed."""
        ciphers = {**self._ring.ciphers, **_make_ciphers(new)}
        present = {bytes.fromhex(each): ciphers[bytes.fromhex(each)] for each in ids}
        self._ring = _Ring(present, None if current is None else bytes.fromhex(current))  # replaced whole: other threads use it

    @property
    def current(self) -> str | None:
        """The id of the key that seals."""
        current = self._ring.current
        return None if current is None else current.hex()

    @property
    def key_ids(self) -> set[str]:
        """The ids of all keys that open."""
        return {key.hex() for key in self._ring.ciphers}

    def seal(self, value: bytes, context: str) -> bytes:
        """Encrypt the value, bound to the context.  ConfigInvalid when this process lacks the current key."""
        ring = self._ring
        if ring.current is None:
            raise ConfigInvalid("this process lacks the current master key; give it that key (docs/master-key.md), and restart it")
        nonce = os.urandom(_NONCE)
        return _WITH_ID + ring.current + nonce + ring.ciphers[ring.current].encrypt(nonce, value, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """Decrypt the value; ConfigInvalid when the keys, the context or the ciphertext do not match."""
        return self.open_with(sealed, context)[0]

    def open_with(self, sealed: bytes, context: str) -> tuple[bytes, str]:
        """The decrypted value, and the id of the key that opened it; ConfigInvalid as `open`."""
        if sealed[:1] == _WITH_ID:
            start, keys = PREFIX_BYTES, [sealed[1:PREFIX_BYTES]]
            if keys[0] not in self._ring.ciphers and len(keys[0]) == _ID_BYTES:
                self.find_key(keys[0].hex())
        else:
            start, keys = 1, list(self._ring.ciphers) if sealed[:1] == _WITHOUT_ID else []
        nonce, text = sealed[start : start + _NONCE], sealed[start + _NONCE :]
        for key in keys:
            cipher = self._ring.ciphers.get(key)
            if cipher is None or len(text) < _TAG:
                continue
            try:
                return cipher.decrypt(nonce, text, context.encode()), key.hex()
            except InvalidTag:  # another key of the ring may open a value that names none
                continue
        raise ConfigInvalid(Sentence(
            "the sealed value %(context)s cannot be decrypted; restore the master key that belongs to this database",
            context=repr(context),
        ))

    def digest(self, value: bytes) -> bytes:
        """The HMAC-SHA256 of a credential, to store and compare instead of the credential itself; the same under every key."""
        digest = self._digest.copy()  # Keyed once, because every request with an API key is digested.
        digest.update(value)
        return digest.digest()
