"""Encryption of a backup file under a passphrase, a piece at a time.

The key is Argon2id (RFC 9106) of the passphrase with a salt of the file's own.  Pieces of 1 MiB are sealed by AES-256-GCM in
the STREAM construction (Hoang, Reyhanitabar, Rogaway, Vizár: Online Authenticated-Encryption and its Nonce-Reuse
Misuse-Resistance, 2015): the nonce is 7 random bytes, the piece's number and whether it is the last one, so that pieces
cannot be changed, exchanged or left out at the end.  The header is authenticated with every piece.
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
_MOST = {"memory_kib": 1 << 20, "rounds": 16, "lanes": 16}  # what a file may demand of us


def check_passphrase(passphrase: str) -> None:
    """BackupInvalid when it is too short to protect what a backup holds."""
    if len(passphrase) < SHORTEST_PASSPHRASE:
        told = Sentence(
            "a passphrase of a backup has at least %(shortest_passphrase)s characters; choose a longer one",
            shortest_passphrase=SHORTEST_PASSPHRASE,
        )
        raise BackupInvalid(told, pointer="/passphrase")


class SealingWriter:
    """Seals what is written to it into `target`; `finish` writes the last piece, without which nothing opens."""

    def __init__(self, target: BinaryIO, passphrase: str) -> None:
        check_passphrase(passphrase)
        salt, self._prefix = os.urandom(16), os.urandom(7)
        told = {"kdf": "argon2id", **_COST, "salt": _text(salt), "prefix": _text(self._prefix), "aead": "AES-256-GCM"}
        line = json.dumps(told, separators=(",", ":")).encode()
        self._header = MAGIC + len(line).to_bytes(2, "big") + line
        self._aead = AESGCM(_derive(passphrase, salt, _COST))
        self._target, self._held, self._number = target, bytearray(), 0
        target.write(self._header)

    def write(self, data: Any) -> int:
        """Take bytes; a full piece is written once it is known not to be the last."""
        self._held += data
        while len(self._held) > PIECE:
            self._seal(bytes(self._held[:PIECE]), is_last=False)
            del self._held[:PIECE]
        return len(data)

    def flush(self) -> None:
        """What is held waits for its piece to be full."""

    def finish(self) -> None:
        """Seal the last piece."""
        self._seal(bytes(self._held), is_last=True)

    def _seal(self, piece: bytes, *, is_last: bool) -> None:
        nonce = _nonce(self._prefix, self._number, is_last=is_last)
        self._target.write(self._aead.encrypt(nonce, piece, self._header))
        self._number += 1


class OpeningReader:
    """Reads what a SealingWriter wrote; BackupInvalid at the first piece that is not as it was written."""

    def __init__(self, source: BinaryIO, passphrase: str) -> None:
        self._source = source
        self._header, told = _read_header(source)
        cost = {name: told[name] for name in _COST}
        self._prefix = base64.b64decode(told["prefix"])
        self._aead = AESGCM(_derive(passphrase, base64.b64decode(told["salt"]), cost))
        self._held, self._number, self._ended = b"", 0, False
        self._next = source.read(PIECE + TAG)

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; all that is left without one."""
        parts, wanted = [], size
        while wanted != 0 and (self._held or self._open_piece()):
            taken = self._held if wanted < 0 else self._held[:wanted]
            self._held = self._held[len(taken) :]
            parts.append(taken)
            wanted -= len(taken) if wanted > 0 else 0
        return b"".join(parts)

    def _open_piece(self) -> bool:
        if self._ended:
            return False
        piece, self._next = self._next, self._source.read(PIECE + TAG)
        self._ended = not self._next
        try:
            self._held = self._aead.decrypt(_nonce(self._prefix, self._number, is_last=self._ended), piece, self._header)
        except InvalidTag as error:
            raise BackupInvalid(
                "the passphrase is not the one of this backup, or its beginning is damaged"
                if self._number == 0
                else "the backup is damaged or incomplete; use another copy of it"
            ) from error
        self._number += 1
        return bool(self._held)


def _read_header(source: BinaryIO) -> tuple[bytes, dict[str, Any]]:
    start = source.read(len(MAGIC) + 2)
    line = source.read(int.from_bytes(start[len(MAGIC) :], "big"))
    try:
        told = json.loads(line)
        fits = told["kdf"] == "argon2id" and told["aead"] == "AES-256-GCM"
        fits = fits and all(type(told[name]) is int and 0 < told[name] <= most for name, most in _MOST.items())
        fits = fits and len(base64.b64decode(told["salt"])) == 16 and len(base64.b64decode(told["prefix"])) == 7
    except (ValueError, KeyError, TypeError) as error:
        raise BackupInvalid("the header of the encrypted backup is damaged; use another copy of it") from error
    if not fits:
        raise BackupInvalid("the backup is encrypted in a way that this release does not know; use the newer release")
    return start + line, told


def _derive(passphrase: str, salt: bytes, cost: dict[str, int]) -> bytes:
    return hash_secret_raw(passphrase.encode(), salt, cost["rounds"], cost["memory_kib"], cost["lanes"], 32, Type.ID)


def _nonce(prefix: bytes, number: int, *, is_last: bool) -> bytes:
    return prefix + number.to_bytes(4, "big") + (b"\x01" if is_last else b"\x00")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
