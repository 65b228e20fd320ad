"""Encrypts and decrypts a backup file with a passphrase, piece by piece.

The key is derived by Argon2id (RFC 9106) from the passphrase and a random salt.  Pieces of 1 MiB are sealed by AES-256-GCM in
the STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizár: Online Authenticated-Encryption and its Nonce-Reuse
Misuse-Resistance, 2015): the nonce is 7 random bytes, the piece's number and whether it is the last one, so that changed,
reordered and missing pieces are detected.  The header is authenticated with every piece.
"""

import base64
import json
import os
from typing import Any, BinaryIO

from argon2.low_level import Type, hash_secret_raw
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from appliance.core.sentences import Sentence

from .problems import BackupInvalid

MAGIC = b"GOS-SEALED-1\n"
PIECE, TAG = 1 << 20, 16
SHORTEST_PASSPHRASE = 12
_COST = {"memory_kib": 65_536, "rounds": 3, "lanes": 4}
_MOST = {"memory_kib": 1 << 20, "rounds": 16, "lanes": 16}  # the highest cost accepted from a file


def check_passphrase(passphrase: str) -> None:
    """Raises BackupInvalid when the passphrase is too short."""
    if len(passphrase) < SHORTEST_PASSPHRASE:
        message = Sentence(
            "the passphrase of a backup must have at least %(shortest_passphrase)s characters; choose a longer one",
            shortest_passphrase=SHORTEST_PASSPHRASE,
        )
        raise BackupInvalid(message, pointer="/passphrase")


def refuse_unencrypted(passphrase: str | None) -> None:
    """Raises BackupInvalid without a passphrase: a bucket gets encrypted backups only."""
    if not passphrase:
        raise BackupInvalid(
            "a backup in a bucket must be encrypted; set GOS_BACKUP_PASSPHRASE, or give its passphrase with --passphrase-file FILE",
            pointer="/passphrase",
        )


class SealingWriter:
    """Encrypts what is written to it into `target`; `finish` writes the last piece, without which the file is incomplete."""

    def __init__(self, target: BinaryIO, passphrase: str) -> None:
        check_passphrase(passphrase)
        salt, self._prefix = os.urandom(16), os.urandom(7)
        parameters = {"kdf": "argon2id", **_COST, "salt": _encode(salt), "prefix": _encode(self._prefix), "aead": "AES-256-GCM"}
        line = json.dumps(parameters, separators=(",", ":")).encode()
        self._header = MAGIC + len(line).to_bytes(2, "big") + line
        self._aead = AESGCM(_derive(passphrase, salt, _COST))
        self._target, self._buffer, self._number = target, bytearray(), 0
        target.write(self._header)

    def write(self, data: Any) -> int:
        """Buffers bytes; a full piece is written once more bytes follow, because the last one is marked."""
        self._buffer += data
        while len(self._buffer) > PIECE:
            self._seal(bytes(self._buffer[:PIECE]), is_last=False)
            del self._buffer[:PIECE]
        return len(data)

    def flush(self) -> None:
        """Does nothing: the buffer is written when its piece is full."""

    def finish(self) -> None:
        """Writes the last piece."""
        self._seal(bytes(self._buffer), is_last=True)

    def _seal(self, piece: bytes, *, is_last: bool) -> None:
        nonce = _nonce(self._prefix, self._number, is_last=is_last)
        self._target.write(self._aead.encrypt(nonce, piece, self._header))
        self._number += 1


class OpeningReader:
    """Decrypts the output of a SealingWriter; raises BackupInvalid at the first piece that was changed."""

    def __init__(self, source: BinaryIO, passphrase: str) -> None:
        self._source = source
        self._header, parameters = _read_header(source)
        cost = {name: parameters[name] for name in _COST}
        self._prefix = base64.b64decode(parameters["prefix"])
        self._aead = AESGCM(_derive(passphrase, base64.b64decode(parameters["salt"]), cost))
        self._buffer, self._number, self._ended = b"", 0, False
        self._next = source.read(PIECE + TAG)

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, or everything that is left."""
        parts, remaining = [], size
        while remaining != 0 and (self._buffer or self._open_piece()):
            piece = self._buffer if remaining < 0 else self._buffer[:remaining]
            self._buffer = self._buffer[len(piece) :]
            parts.append(piece)
            remaining -= len(piece) if remaining > 0 else 0
        return b"".join(parts)

    def _open_piece(self) -> bool:
        if self._ended:
            return False
        piece, self._next = self._next, self._source.read(PIECE + TAG)
        self._ended = not self._next
        try:
            self._buffer = self._aead.decrypt(_nonce(self._prefix, self._number, is_last=self._ended), piece, self._header)
        except InvalidTag as error:
            raise BackupInvalid(
                "the passphrase is wrong, or the beginning of the backup is damaged"
                if self._number == 0
                else "the backup is damaged or incomplete; use another copy of it"
            ) from error
        self._number += 1
        return bool(self._buffer)


def _read_header(source: BinaryIO) -> tuple[bytes, dict[str, Any]]:
    start = source.read(len(MAGIC) + 2)
    line = source.read(int.from_bytes(start[len(MAGIC) :], "big"))
    try:
        parameters = json.loads(line)
        is_supported = (
            parameters["kdf"] == "argon2id"
            and parameters["aead"] == "AES-256-GCM"
            and all(type(parameters[name]) is int and 0 < parameters[name] <= most for name, most in _MOST.items())
            and len(base64.b64decode(parameters["salt"])) == 16
            and len(base64.b64decode(parameters["prefix"])) == 7
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BackupInvalid("the header of the encrypted backup is damaged; use another copy of it") from error
    if not is_supported:
        raise BackupInvalid("this release does not support the encryption of the backup; install a newer release")
    return start + line, parameters


def _derive(passphrase: str, salt: bytes, cost: dict[str, int]) -> bytes:
    return hash_secret_raw(
        passphrase.encode(), salt, cost["rounds"], cost["memory_kib"], parallelism=cost["lanes"], hash_len=32, type=Type.ID
    )


def _nonce(prefix: bytes, number: int, *, is_last: bool) -> bytes:
    return prefix + number.to_bytes(4, "big") + (b"\x01" if is_last else b"\x00")


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
