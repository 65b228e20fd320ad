"""An archive of points: what one installation has shipped with one passphrase, and how its files are called.

    archives/<installation>.<archive>.json                   how the key is derived
    points-<installation>/<archive>/contents/<2>/<sha256>    the contents of documents and WebApps
    points-<installation>/<archive>/chains/<chain>/base-<time>-<epoch>.gosb
    points-<installation>/<archive>/chains/<chain>/<number>-<epoch>-<first>-<last>-<time>.segment
    points-<installation>/<archive>/chains/<chain>/<numbers>-<epochs>-<first>-<last>-<time>-<level>.merged
    points-<installation>/<archive>/chains/<chain>/through

A chain is an unbroken sequence of segments of the write-ahead log; a base is the whole database, from which on its segments are
applied.  `through` says until when a chain is complete.  Times are epoch milliseconds.  A merged file has what the segments of
its numbers have, which are deleted once it is there (`merging`); until then it takes their place.
"""

import base64
import io
import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from argon2.low_level import Type, hash_secret_raw

from appliance.backups.problems import BackupInvalid
from appliance.core import clock
from appliance.core.sentences import Sentence

from .sealing import PointSealer
from .stores import PointStore, read_all

FOLDER, HEADS, CHAINS, CONTENTS, THROUGH = "points-", "archives", "chains", "contents", "through"
_FORMAT = 1
_COST = {"memory_kib": 65_536, "rounds": 3, "lanes": 4}
_MOST_COST = {"memory_kib": 1 << 20, "rounds": 16, "lanes": 16}
_CHECK = "check"
_HEAD = re.compile(r"archives/(ins_[0-9a-f]{24})\.([0-9a-f]{1,40})\.json")
_BASE = re.compile(r"base-(\d{13})-(\d{6})\.gosb")
_SEGMENT = re.compile(r"(\d{9})-(\d{6})-(\d{9})-(\d{9})-(\d{13})\.segment")
_MERGED = re.compile(r"(\d{9})\+(\d{9})-(\d{6})\+(\d{6})-(\d{9})-(\d{9})-(\d{13})-(\d)\.merged")


@dataclass(frozen=True)
class Archive:
    """An archive in a store, opened."""

    store: PointStore
    installation: str
    name: str
    sealer: PointSealer
    is_encrypted: bool

    @property
    def path(self) -> str:
        return f"{FOLDER}{self.installation}/{self.name}"

    def content_name(self, sha256: str) -> str:
        return f"{self.path}/{CONTENTS}/{sha256[:2]}/{sha256}"


@dataclass(frozen=True)
class Base:
    """A base: the database as of `time`; the segments of its chain since the beginning of `epoch` apply to it."""

    name: str
    time: int
    epoch: int
    size: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Frames `first` to `last` of an epoch; the last commit that ends in it was seen at `time`.

    A merged one, whose `level` is not 0, has those of the numbers from `number` to `last_number`: it begins with the frame
    `first` of `first_epoch`, and ends with the frame `last` of `epoch`.
    """

    name: str
    number: int
    last_number: int
    first_epoch: int
    epoch: int
    first: int
    last: int
    time: int
    size: int
    level: int


@dataclass(frozen=True)
class Chain:
    """A chain by its files, of which the bases and segments are in order; `superseded` are the names of what was merged."""

    name: str
    bases: tuple[Base, ...]
    segments: tuple[Segment, ...]
    superseded: tuple[str, ...] = ()

    @property
    def last_time(self) -> int:
        """The time of the last point, as far as the names say."""
        return max([*(base.time for base in self.bases), *(segment.time for segment in self.segments)], default=0)


def base_name(time: int, epoch: int) -> str:
    return f"base-{time:013}-{epoch:06}.gosb"


def segment_name(number: int, epoch: int, frames: tuple[int, int], time: int) -> str:
    return f"{number:09}-{epoch:06}-{frames[0]:09}-{frames[1]:09}-{time:013}.segment"


def merged_name(segments: Sequence[Segment]) -> str:
    """The name of the file that has what these segments have."""
    first, last = segments[0], segments[-1]
    level = min(9, max(each.level for each in segments) + 1)
    numbers, epochs = f"{first.number:09}+{last.last_number:09}", f"{first.first_epoch:06}+{last.epoch:06}"
    return f"{numbers}-{epochs}-{first.first:09}-{last.last:09}-{last.time:013}-{level}.merged"


def parse_segment(path: str, size: int) -> Segment | None:
    """The segment with this name in the store; None if it is another kind of file."""
    name = path.rpartition("/")[2]
    if match := _SEGMENT.fullmatch(name):
        number, epoch, first, last, time = map(int, match.groups())
        return Segment(
            path, number, number, first_epoch=epoch, epoch=epoch, first=first, last=last, time=time, size=size, level=0
        )  # fmt: skip
    if match := _MERGED.fullmatch(name):
        number, last_number, first_epoch, epoch, first, last, time, level = map(int, match.groups())
        return Segment(
            path, number, last_number, first_epoch=first_epoch, epoch=epoch, first=first, last=last, time=time, size=size,
            level=level,
        )  # fmt: skip
    return None


def new_chain_name(time: int) -> str:
    """A name that sorts by time."""
    return f"{time:013}-{secrets.token_hex(4)}"


def find_archives(store: PointStore) -> list[tuple[str, str]]:
    """The installation and name of each archive in the store."""
    matches = (_HEAD.fullmatch(each.name) for each in store.list(HEADS))
    return sorted((match[1], match[2]) for match in matches if match)


def head_name(installation: str, name: str) -> str:
    return f"{HEADS}/{installation}.{name}.json"


def open_archive(store: PointStore, installation: str, name: str, passphrase: str | None) -> Archive | None:
    """The archive; None if it has another passphrase.  BackupInvalid if its head is damaged."""
    head = _parse_head(read_all(store, head_name(installation, name)), name)
    if head["kdf"] is None:
        return Archive(store, installation, name, PointSealer(None), is_encrypted=False)
    if not passphrase:
        return None
    sealer = PointSealer(_derive(passphrase, head["kdf"]))
    try:
        b"".join(sealer.unpack(_CHECK, io.BytesIO(base64.b64decode(head["check"]))))
    except BackupInvalid:
        return None
    return Archive(store, installation, name, sealer, is_encrypted=True)


def make_archive(store: PointStore, installation: str, passphrase: str | None) -> Archive:
    """Open the archive of the installation with this passphrase, or begin one."""
    for owner, name in find_archives(store):
        if owner == installation:
            archive = open_archive(store, installation, name, passphrase)
            if archive is not None and archive.is_encrypted == bool(passphrase):
                return archive
    name, kdf = secrets.token_hex(8), {**_COST, "salt": base64.b64encode(os.urandom(16)).decode()} if passphrase else None
    sealer = PointSealer(_derive(passphrase, kdf) if passphrase and kdf else None)
    check = base64.b64encode(b"".join(sealer.pack(_CHECK, [b"right"]))).decode()
    head = {"format": _FORMAT, "kdf": kdf, "check": check, "made_at": clock.rfc3339(clock.now_ms())}
    archive = Archive(store, installation, name, sealer, is_encrypted=bool(passphrase))
    store.put(head_name(installation, name), [json.dumps(head).encode()])
    return archive


def list_chains(archive: Archive) -> list[Chain]:
    """The chains of an archive, the oldest first."""
    folder, chains = f"{archive.path}/{CHAINS}/", dict[str, tuple[list[Base], list[Segment]]]()
    for each in archive.store.list(folder):
        chain, _, name = each.name.removeprefix(folder).partition("/")
        bases, segments = chains.setdefault(chain, ([], []))
        if match := _BASE.fullmatch(name):
            bases.append(Base(each.name, int(match[1]), int(match[2]), each.size))
        elif segment := parse_segment(each.name, each.size):
            segments.append(segment)
    return [_make_chain(name, *chains[name]) for name in sorted(chains)]


def _make_chain(name: str, bases: list[Base], segments: list[Segment]) -> Chain:
    """A chain of these files; a segment whose numbers a merged one has is superseded."""
    current, superseded = list[Segment](), list[str]()
    for each in sorted(segments, key=lambda one: (one.number, -one.last_number)):
        if current and each.last_number <= current[-1].last_number:
            superseded.append(each.name)
        else:
            current.append(each)
    return Chain(name, tuple(sorted(bases, key=lambda base: base.time)), tuple(current), tuple(superseded))


def through_name(archive: Archive, chain: str) -> str:
    return f"{archive.path}/{CHAINS}/{chain}/{THROUGH}"


def read_through(archive: Archive, chain: Chain) -> int:
    """Until when the chain is complete (epoch ms)."""
    name = through_name(archive, chain.name)
    if not archive.store.has(name):
        return chain.last_time
    text = read_all(archive.store, name)
    return max(chain.last_time, int(text)) if text.isdigit() and len(text) < 16 else chain.last_time


def _parse_head(content: bytes, name: str) -> dict[str, Any]:
    try:
        head = json.loads(content)
        kdf = head["kdf"]
        if head["format"] != _FORMAT:
            raise BackupInvalid(Sentence("this release does not support the archive %(name)s; install a newer release", name=name))
        if kdf is not None and not all(type(kdf[key]) is int and 0 < kdf[key] <= most for key, most in _MOST_COST.items()):
            raise ValueError
        base64.b64decode(head["check"])
        if kdf is not None and len(base64.b64decode(kdf["salt"])) != 16:
            raise ValueError
    except (ValueError, KeyError, TypeError) as error:
        raise BackupInvalid(
            Sentence("the head of the archive %(name)s is damaged; use another copy of the points", name=name)
        ) from error
    return dict(head)


def _derive(passphrase: str, kdf: dict[str, Any]) -> bytes:
    return hash_secret_raw(
        passphrase.encode(), base64.b64decode(kdf["salt"]), kdf["rounds"], kdf["memory_kib"], parallelism=kdf["lanes"],
        hash_len=32, type=Type.ID,
    )  # fmt: skip
