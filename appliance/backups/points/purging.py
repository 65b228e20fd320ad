"""Deletes points that are older than `backup.points_for`, and the contents that only they named."""

from .archives import Archive, Chain, list_chains, through_name


def purge(archive: Archive, before: int) -> int:
    """Delete what no moment since `before` needs (epoch ms); returns the number of deleted files.

    The newest base before that moment stays, with the segments of its chain since its epoch.
    """
    chains = list_chains(archive)
    oldest = max((base.time for chain in chains for base in chain.bases if base.time <= before), default=None)
    if oldest is None:
        return 0
    names = [name for chain in chains for name in _superfluous(archive, chain, oldest)]
    for name in names:
        archive.store.delete(name)
    return len(names)


def _superfluous(archive: Archive, chain: Chain, oldest: int) -> list[str]:
    """The files of a chain that are needed only for moments before the base of the time `oldest`."""
    needed = [base for base in chain.bases if base.time >= oldest]
    if needed:
        epoch = min(base.epoch for base in needed)
        names = [base.name for base in chain.bases if base.time < oldest]
        return names + [segment.name for segment in chain.segments if segment.epoch < epoch]
    if chain.last_time >= oldest:
        return []  # it has no base yet
    files = [*(base.name for base in chain.bases), *(segment.name for segment in chain.segments)]
    return [*files, through_name(archive, chain.name)]


