"""When the next rehearsal is due, and the results of the last ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from appliance.core import clock
from appliance.core.config import Config

from .records import Rehearsal

RETRY_MS = 24 * 3_600_000  # the delay after one that failed


@dataclass(frozen=True)
class RehearsalStatus:
    """`last` is the latest that ended, `running` the one in progress; `every` is empty when none are scheduled."""

    every: str
    next_at: int | None
    last: Rehearsal | None
    running: Rehearsal | None


def find_due(config: Config, rehearsals: Sequence[Rehearsal]) -> int | None:
    """When the next rehearsal is due (epoch ms), 0 for at once; None when none are scheduled."""
    if not config.backup.rehearse_every:
        return None
    every, now = clock.parse_duration(config.backup.rehearse_every), clock.now_ms()
    last = next(iter(rehearsals), None)
    if last is None or last.started_at > now:
        return 0
    return last.started_at + (min(every, RETRY_MS) if last.problem is not None else every)


def get_status(config: Config, rehearsals: Sequence[Rehearsal]) -> RehearsalStatus:
    """The status; `rehearsals` are those that are remembered, the latest first."""
    return RehearsalStatus(
        every=config.backup.rehearse_every, next_at=find_due(config, rehearsals) or None,
        last=next((each for each in rehearsals if not each.is_running), None),
        running=next((each for each in rehearsals if each.is_running), None),
    )  # fmt: skip


def findings(config: Config, rehearsals: Sequence[Rehearsal]) -> Iterator[tuple[str, str]]:
    """The findings of `gos doctor` about rehearsals: (level, text)."""
    status = get_status(config, rehearsals)
    if not status.every and status.last is None:
        if config.backup.to:
            yield "note", "no restore is ever rehearsed: set backup.rehearse_every to 7d, or run gos backup rehearse FILE"
        return
    if status.last is None:
        yield "note", "no restore has been rehearsed yet; the appliance does when it runs and has a backup"
        return
    at, source = clock.rfc3339(status.last.started_at), status.last.source
    if status.last.result is None:
        yield "FAIL", f"the rehearsal of a restore failed at {at} ({source}): {status.last.problem}"
        return
    result = status.last.result
    seconds = (result.restore_ms + result.start_ms) / 1000
    yield "ok", (
        f"the restore of {source} was rehearsed at {at}: {result.rows} rows and {result.contents} contents answered after "
        f"{seconds:.1f} s"
    )
    if status.every and status.next_at and clock.now_ms() > status.next_at + clock.parse_duration(status.every):
        yield "FAIL", f"a restore is to be rehearsed every {status.every}, but was last at {at}: is the appliance running?"
