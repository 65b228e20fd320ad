"""Time series from the counters: counts, durations and failures."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from appliance.core import clock
from appliance.core.errors import InvalidRequest
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from . import rollup, tally
from .tally import DAY, HOUR, MINUTE, RESOLUTIONS

Kind = Literal["execution", "waiting", "step", "integration", "key", "webapp"]
CounterKind = Kind | Literal["key_bytes", "webapp_bytes"]
MAX_POINTS = 1_000
MAX_BUCKET = 366 * DAY
_NICE_POINTS = 120
_BUCKETS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY)
_NO_FAILURES = frozenset({"succeeded", "cancelled", "skipped"})
MAX_NAMES = 50
_result_of, _sum_of = itemgetter(1), itemgetter(4)


@dataclass(frozen=True)
class Window:
    """A query: [since, until) in epoch milliseconds; `bucket` in ms, None chooses one suitable for a chart.

    `name` selects one process, kind of step, integration, API key or WebApp.  The durations of `execution` are the times in
    which executions were working; `waiting` counts those that waited for something outside, and how long.
    """

    since: int
    until: int
    bucket: int | None = None
    kind: CounterKind = "execution"
    name: str | None = None


@dataclass
class Summary:
    """Counts by result and by duration slot, with their total duration in ms, from rows of `rollup.read` or `read_names`.

    The rows are kept and added up when a number is asked for: a chart has a hundred summaries of a dozen rows each, of which it
    shows a few numbers.
    """

    rows: list[tally.Row] = field(default_factory=list)

    def add(self, result: str, slot: int, sums: Sequence[Any]) -> None:
        """Add durations of a result in one slot: their count, sum, minimum and maximum, the latter None if not recorded."""
        self.rows.append(("", result, slot, *sums))

    @property
    def by_result(self) -> dict[str, int]:
        """Counts by result, in the order of the rows."""
        counts = dict.fromkeys(map(_result_of, self.rows), 0)
        for result, rows in groupby(sorted(self.rows, key=_result_of), _result_of):
            counts[result] = sum(map(tally.count_of, rows))
        return counts

    @property
    def slots(self) -> dict[int, int]:
        """Counts by duration slot."""
        by_slot = groupby(sorted(self.rows, key=tally.slot_of_row), tally.slot_of_row)
        return {slot: sum(map(tally.count_of, rows)) for slot, rows in by_slot}

    @property
    def sum_ms(self) -> float:
        return sum(map(_sum_of, self.rows), 0.0)

    @property
    def count(self) -> int:
        return sum(map(tally.count_of, self.rows))

    @property
    def failures(self) -> int:
        """Everything that neither succeeded nor ended intentionally."""
        return sum([tally.count_of(row) for row in self.rows if _result_of(row) not in _NO_FAILURES])

    @property
    def mean_ms(self) -> float | None:
        return round(self.sum_ms / self.count, 3) if self.count else None

    def percentile(self, share: float) -> float | None:
        return self.percentiles(share)[0]

    def percentiles(self, *shares: float) -> list[float | None]:
        return tally.percentiles(self.rows, shares)


@dataclass(frozen=True)
class Series:
    """`points` has one summary per bucket from `since` on, including empty ones.

    `names` has the most frequent names, the most frequent first.
    """

    since: int
    until: int
    bucket: int
    points: list[tuple[int, Summary]]
    total: Summary
    names: Mapping[str, Summary]


@dataclass(frozen=True, slots=True)
class Count:
    """A number of results, and how many of them were failures."""

    count: int
    failures: int


_NOTHING = Count(0, 0)


@dataclass
class CountSeries:
    """`points` has one count per bucket, including empty ones."""

    points: list[tuple[int, Count]]
    total: Count = _NOTHING


def read_series(scope: TenantScope, window: Window, *, most_names: int = MAX_NAMES) -> Series:
    """Read the counters of a window; InvalidRequest if it is empty or has too many points.

    `names` has at most `most_names`, or the one that the window selects: reading them takes as long as the points.

    Counters older than two days are stored by the hour, older than 90 days by the day: the bucket is a multiple of that.
    """
    if window.since >= window.until:
        raise InvalidRequest("since must lie before until", pointer="/since")
    bucket = _choose_bucket(window)
    since = window.since // bucket * bucket
    until = -(-window.until // bucket) * bucket
    if (until - since) // bucket > MAX_POINTS:
        raise InvalidRequest(
            Sentence(
                "this window has more than %(max_points)s points; use a wider bucket or a shorter period", max_points=MAX_POINTS
            ),
            pointer="/bucket",
        )
    points, total = [(at, Summary()) for at in range(since, until, bucket)], Summary()
    for piece in rollup.pieces(scope, window.kind, since, until, bucket):
        for row in rollup.read(scope, window.kind, window.name, piece, (since, bucket)):
            points[row[0]][1].rows.append(row)
    for _, point in points:
        total.rows += point.rows
    if window.name is not None:
        names = {window.name: total} if total.count else {}
    else:
        names = _read_names(scope, window.kind, (since, until), most_names)
    return Series(since, until, bucket, points, total, names)


def read_counts(scope: TenantScope, window: Window, names: Sequence[str]) -> dict[str, CountSeries]:
    """The series of each of these names, with counts only: for lists with many charts and no durations."""
    bucket = _choose_bucket(window)
    since, until = window.since // bucket * bucket, -(-window.until // bucket) * bucket
    series_by_name = {name: CountSeries([(at, _NOTHING) for at in range(since, until, bucket)]) for name in names}
    for piece in rollup.pieces(scope, window.kind, since, until, bucket) if names else ():
        for name, index, result, count in rollup.read_counts(scope, window.kind, names, piece, (since, bucket)):
            failures = 0 if result in _NO_FAILURES else count
            series = series_by_name[name]
            at, point = series.points[index]
            series.points[index] = (at, Count(point.count + count, point.failures + failures))
            series.total = Count(series.total.count + count, series.total.failures + failures)
    return series_by_name


def read_names(scope: TenantScope, window: Window) -> dict[str, Summary]:
    """The 50 most frequent names of a window, most frequent first."""
    resolution = _resolution_at(window.since)
    return _read_names(scope, window.kind, (window.since // resolution * resolution, window.until), MAX_NAMES)


def _read_names(scope: TenantScope, kind: CounterKind, period: tuple[int, int], most: int) -> dict[str, Summary]:
    counts: dict[str, int] = defaultdict(int)
    pieces = []  # those with names
    for piece in rollup.pieces(scope, kind, *period, DAY) if most else ():
        if numbers := rollup.count_names(scope, kind, piece):
            pieces.append(piece)
        for name, count in numbers:
            counts[name] += count
    names = {name: Summary() for name in sorted(counts, key=lambda name: (-counts[name], name))[:most]}
    for piece in pieces:
        for row in rollup.read_names(scope, kind, piece, list(names)):
            names[row[0]].rows.append(row)
    return names


def read_total(scope: TenantScope, kind: Kind, name: str | None, since: int) -> Summary:
    """The total of a kind, or of one name, counted from `since` (epoch ms, a whole minute) on.

    Where counters are stored by the hour or the day, it starts at the beginning of that hour or day.
    """
    until, total = clock.now_ms() // MINUTE * MINUTE + MINUTE, Summary()
    resolution = _resolution_at(since)
    since = since // resolution * resolution
    for piece in rollup.pieces(scope, kind, since, until, DAY):
        total.rows += rollup.read(scope, kind, name, piece, (since, until - since))
    return total


def _choose_bucket(window: Window) -> int:
    resolution = _resolution_at(window.since)
    if window.bucket is not None:
        if not MINUTE <= window.bucket <= MAX_BUCKET or window.bucket % MINUTE:
            raise InvalidRequest("bucket must be whole minutes, such as 5m, 1h or 1d, and a year at most", pointer="/bucket")
        return -(-window.bucket // resolution) * resolution
    span = window.until - window.since
    return max(resolution, next((width for width in _BUCKETS if span <= width * _NICE_POINTS), DAY))


def _resolution_at(since: int) -> int:
    """The resolution in which the counters of this time are stored."""
    now = clock.now_ms()
    return max((width for age, width in RESOLUTIONS if since < now - age), default=MINUTE)
