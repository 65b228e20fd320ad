"""Verifies a file with exported or received entries of an audit trail: their chain, and the signatures of its checkpoints."""

import base64
import binascii
import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from appliance.monitor.audit import CHECKPOINT, ChainStatus, hash_of, read_exported, verify_entries
from appliance.monitor.models import AuditEntry

from .checkpoints import split_signature


@dataclass(frozen=True)
class FileStatus:
    """The state of the entries, the fingerprint of the key that signed last, and how many entries follow without a signature.

    `is_signed`: the chain is intact, and a valid signature covers the last entry, or says that there is none.
    """

    chain: ChainStatus
    key: str | None
    unsigned: int

    @property
    def is_signed(self) -> bool:
        return self.chain.intact and self.key is not None and not self.unsigned


class _Invalid(Exception):
    """A checkpoint that does not fit the keys, or what is before it; the text is the reason."""


def verify_file(file: BinaryIO, keys: Mapping[str, Ed25519PublicKey]) -> FileStatus:
    """Verify a file of entries and checkpoints of one trail with these public keys.

    Entries must follow each other, unless the signed end of the file says that it was filtered.  ValidationFailed for lines that
    are neither.
    """
    last = deque((line for line in file if line.strip()), maxlen=1)
    file.seek(0)
    reading = _Reading(file, keys)
    try:
        chain = _verify_filtered(reading) if last and _is_filtered(last[0]) else _verify_chained(reading)
    except _Invalid as invalid:
        reason = str(invalid)
        chain = ChainStatus(False, reading.count, reading.first, reading.last_seq, reading.last_seq, reason)
    if chain.intact and not reading.count and reading.start is not None:
        reason = f"the file has no entries; its checkpoint is about entry {reading.start[1]}"
        chain = ChainStatus(False, 0, None, None, reading.start[1], reason)
    return FileStatus(chain, reading.key, reading.unsigned)


def _is_filtered(line: bytes) -> bool:
    return split_signature(line) is not None and b'"filtered": true' in line


def _verify_chained(entries: Iterable[AuditEntry]) -> ChainStatus:
    iterator = iter(entries)
    first = next(iterator, None)
    if first is None:
        return ChainStatus(True, 0, None, None)

    def all_entries() -> Iterator[AuditEntry]:
        yield first
        yield from iterator

    return verify_entries(first.seq - 1, first.previous_hash, all_entries())


def _verify_filtered(reading: "_Reading") -> ChainStatus:
    """Each entry has its own hash and comes after those before; the signature covers that none was removed."""
    before, status = 0, ChainStatus(True, 0, None, None)
    for entry in reading:
        if entry.seq <= before or hash_of(entry) != entry.hash:
            reason = "its content was changed" if entry.seq > before else "it is not in order"
            return replace(status, intact=False, broken_seq=entry.seq, reason=reason)
        status = ChainStatus(True, status.entries + 1, status.first_seq or entry.seq, entry.seq)
        before = entry.seq
    return status


class _Reading:
    """The entries of a file in order; each checkpoint between them is verified against those before it, or raises _Invalid.

    `start` is the trail, number and hash of the entry that a checkpoint before all entries is about: the first one follows it.
    """

    def __init__(self, lines: Iterable[bytes], keys: Mapping[str, Ed25519PublicKey]) -> None:
        self._lines, self._keys = lines, keys
        self._digest = hashlib.sha256()
        self._last: AuditEntry | None = None
        self.start: tuple[Any, ...] | None = None
        self.first: int | None = None
        self.count = self.unsigned = 0
        self.key: str | None = None

    @property
    def last_seq(self) -> int | None:
        return None if self._last is None else self._last.seq

    def __iter__(self) -> Iterator[AuditEntry]:
        for number, line in enumerate(self._lines, 1):
            signed = split_signature(line)
            if signed is not None:
                self._check(number, line, *signed)
            elif line.strip():
                entry = read_exported(number, line)
                self._check_trail(number, entry)
                yield entry  # whoever reads has verified it when the next line is asked for
                self._last = entry
                self.first = entry.seq if self.first is None else self.first
                self.count, self.unsigned = self.count + 1, self.unsigned + 1
            self._digest.update(line)

    def _check_trail(self, number: int, entry: AuditEntry) -> None:
        """_Invalid for an entry of another trail than the one before it, or that does not follow the checkpoint before it."""
        if self._last is not None:
            trail = self._last.tenant_id
        elif self.start is not None:
            trail, seq, digest = self.start
            if entry.tenant_id == trail and (entry.seq, entry.previous_hash) != (seq + 1, digest):
                raise _Invalid(f"line {number} is not entry {seq + 1}, which follows the checkpoint before it")
        else:
            return
        if entry.tenant_id != trail:
            raise _Invalid(f"line {number} is of another trail, that of {entry.tenant_id}")

    def _check(self, number: int, line: bytes, signed: bytes, signature: str) -> None:
        try:
            members = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _Invalid(f"the checkpoint in line {number} is damaged") from error
        key = self._keys.get(str(members.get("key")))
        if key is None:
            raise _Invalid(f"line {number} is signed with another key, {members.get('key')}")
        try:
            key.verify(base64.b64decode(signature, validate=True), signed)
        except (InvalidSignature, binascii.Error) as error:
            raise _Invalid(f"the signature in line {number} is wrong") from error
        self._compare(number, members)
        self.key, self.unsigned = str(members["key"]), 0

    def _compare(self, number: int, members: Mapping[str, Any]) -> None:
        """Compare what is signed with the entries before it."""
        if members.get("action") != CHECKPOINT:
            raise _Invalid(f"line {number} is signed, but is no checkpoint")
        about = tuple(map(members.get, ("tenant_id", "seq", "hash")))
        if self._last is None:
            self.start = about if members.get("seq") else None  # an export without entries is about none
        else:
            last = (self._last.tenant_id, self._last.seq, self._last.hash)
            if last != about:
                raise _Invalid(f"the checkpoint in line {number} is about entry {members.get('seq')}, not about the one before it")
        if "sha256" not in members:
            return
        if members.get("entries") != self.count:
            raise _Invalid(f"the file has {self.count} entries; {members.get('entries')} were signed")
        if members["sha256"] != self._digest.hexdigest():
            raise _Invalid("a byte was changed after the signature")
