"""Deletes points that are older than `backup.points_for`, and the contents that only they named."""

from collections.abc import Iterator
from functools import partial

from .archives import CONTENTS, FOLDER, Archive, Base, Chain, find_archives, head_name, list_chains, through_name
from .contents import ContentShipper, list_name
from .sealing import PointSealer
from .stores import PointStore

DAY_MS = 24 * 3_600_000
_DIGEST = 32


def purge(archive: Archive, contents: ContentShipper, before: int) -> int:
    """Delete what no moment since `before` needs (epoch ms); returns from when on each moment can be restored.

    The newest base before that moment stays, with the segments of its chain since its epoch.  Call it right after a base.
    """
    chains = list_chains(archive)
    times = [base.time for chain in chains for base in chain.bases]
    oldest = max((time for time in times if time <= before), default=None)
    if oldest is None:
        return min(times, default=0)
    names = [name for chain in chains for name in _superfluous(archive, chain, oldest)]
    names += _former_archives(archive.store, archive.installation, archive.name, before)
    for name in names:
        archive.store.delete(name)
    bases = [base for chain in chains for base in chain.bases if base.time >= oldest]
    _purge_contents(archive, contents, bases, oldest)
    return oldest


def _superfluous(archive: Archive, chain: Chain, oldest: int) -> list[str]:
    """The files of a chain that are needed only for moments before the base of the time `oldest`."""
    needed = [base for base in chain.bases if base.time >= oldest]
    names = [name for base in chain.bases if base.time < oldest for name in (base.name, list_name(base.name))]
    if needed:
        epoch = min(base.epoch for base in needed)
        return names + [segment.name for segment in chain.segments if segment.epoch < epoch]  # the last epoch of a merged one
    if chain.last_time >= oldest:
        return []  # it has no base yet
    return [*names, *(segment.name for segment in chain.segments), *chain.superseded, through_name(archive, chain.name)]


def _former_archives(store: PointStore, installation: str, name: str, before: int) -> Iterator[str]:
    """The files of the installation's archives with another passphrase that have no moment since."""
    for owner, other in find_archives(store):
        if owner != installation or other == name:
            continue
        former = Archive(store, installation, other, PointSealer(None), is_encrypted=False)  # only its names are read
        if all(chain.last_time < before for chain in list_chains(former)):
            yield from [each.name for each in store.list(f"{FOLDER}{installation}/{other}")]
            yield head_name(installation, other)


def _purge_contents(archive: Archive, contents: ContentShipper, bases: list[Base], oldest: int) -> None:
    """Delete contents that were shipped before the oldest base, and that no base since names."""
    used: set[bytes] = set()
    for base in bases:
        name = list_name(base.name)
        with archive.store.open(name) as file:
            digests = b"".join(archive.sealer.unpack(name, file))
        used.update(digests[at : at + _DIGEST] for at in range(0, len(digests), _DIGEST))
    for each in archive.store.list(f"{archive.path}/{CONTENTS}"):
        sha256 = each.name.rpartition("/")[2]
        # A day, because the clock of a bucket may be another.
        if each.written_at < oldest - DAY_MS and bytes.fromhex(sha256) not in used:
            contents.unless_shipped(sha256, partial(archive.store.delete, each.name))
