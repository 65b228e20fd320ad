"""Compresses and encrypts the files of an archive of points, each with a key of its own.

The key of the archive is derived from the passphrase by Argon2id once; that of a file from it by HKDF-SHA256, with 32 random bytes
and the name of the file, so that no file can take the place of another.  Pieces are sealed by AES-256-GCM; the nonce is the
piece's number and whether it is the last one.  Without a passphrase a file ends with its sha256 instead.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from appliance.backups.problems import BackupInvalid
from appliance.core.sentences import Sentence

SEALED, PLAIN = b"GOS-POINT-1\n", b"GOS-PLAIN-1\n"
_PIECE, _TAG, _SALT, _DIGEST = 1 << 20, 16, 32, 32
_LEVEL = 1


class PointSealer:
    """Packs and unpacks the files of one archive; `key` is None without a passphrase."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    def pack(self, name: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The bytes to store under the name."""
        packed = _compress(pieces)
        return _plain(name, packed) if self._key is None else self._encrypt(self._key, name, packed)

    def unpack(self, name: str, file: BinaryIO) -> Iterator[bytes]:
        """What was packed under the name; BackupInvalid if it was changed, at the end at the latest."""
        magic = file.read(len(SEALED))
        if magic not in (SEALED, PLAIN) or (magic == SEALED) != (self._key is not None):
            raise _damaged(name)
        opened = _open_plain(name, file) if self._key is None else self._decrypt(self._key, name, file)
        return _decompress(name, opened)

    def _encrypt(self, key: bytes, name: str, packed: Iterator[bytes]) -> Iterator[bytes]:
        salt = os.urandom(_SALT)
        yield SEALED + salt
        aead, number, buffer = AESGCM(_file_key(key, salt, name)), 0, bytearray()
        for piece in packed:
            buffer += piece
            while len(buffer) > _PIECE:
                yield aead.encrypt(_nonce(number, is_last=False), bytes(buffer[:_PIECE]), None)
                del buffer[:_PIECE]
                number += 1
        yield aead.encrypt(_nonce(number, is_last=True), bytes(buffer), None)

    def _decrypt(self, key: bytes, name: str, file: BinaryIO) -> Iterator[bytes]:
        aead, number = AESGCM(_file_key(key, file.read(_SALT), name)), 0
        piece = file.read(_PIECE + _TAG)
        while piece:
            following = file.read(_PIECE + _TAG)
            try:
                yield aead.decrypt(_nonce(number, is_last=not following), piece, None)
            except InvalidTag as error:
                raise _damaged(name) from error
            piece, number = following, number + 1
        if number == 0:
            raise _damaged(name)


def _file_key(key: bytes, salt: bytes, name: str) -> bytes:
    return HKDF(SHA256(), 32, salt, b"gos-point\0" + name.encode()).derive(key)


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\x01" if is_last else b"\x00")


def _plain(name: str, packed: Iterator[bytes]) -> Iterator[bytes]:
    digest = hashlib.sha256(name.encode() + b"\0")
    yield PLAIN
    for piece in packed:
        digest.update(piece)
        yield piece
    yield digest.digest()


def _open_plain(name: str, file: BinaryIO) -> Iterator[bytes]:
    digest, rest = hashlib.sha256(name.encode() + b"\0"), b""
    while piece := file.read(_PIECE):
        rest += piece
        ready, rest = rest[:-_DIGEST], rest[-_DIGEST:]
        digest.update(ready)
        yield ready
    if digest.digest() != rest:
        raise _damaged(name)


def _compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


def _decompress(name: str, packed: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    for piece in packed:
        try:
            content = unpacker.decompress(piece) if not unpacker.eof else b""
        except zstandard.ZstdError as error:
            raise _damaged(name) from error
        if content:
            yield content
    if not unpacker.eof:
        raise _damaged(name)


def _damaged(name: str) -> BackupInvalid:
    return BackupInvalid(Sentence(
        "%(name)s is damaged, was changed, or does not belong there; restore to a moment before it, or use another copy of the "
        "points", name=name,
    ))  # fmt: skip
