"""Roll-ups: the counters per minute summed over wider periods, for each name and in total.

Only completed periods are summed: a mark says until when, and everything after it is read from the counters themselves.  If
something is counted for a time before the mark after all, because a clock was wrong, its day is late: it is read from the
counters until, once the day is over, its sums are recomputed.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope, tenant_ids

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WIDTHS = (15 * MINUTE, HOUR, 6 * HOUR, DAY)
KINDS = ("execution", "waiting", "step", "integration", "key", "key_bytes", "webapp", "webapp_bytes")
ALL = ""
"""The name of a kind's totals; no real name is empty."""
SETTLED_MS = 5 * MINUTE
"""After this time no process counts anything for a minute any more."""
MAX_PERIOD = 4 * DAY
NARROW_RETENTION = 3 * DAY
POINTS_PER_WRITE = 50
"""The number of points of one name that one write of `purge` deletes; each has a row per result and slot."""

Piece = tuple[int, int, int]  # width (0: the counters themselves), from, to

# The names after a given one, each found by the key: without names, the database would scan all rows of the kind.
_NAMES = (
    "WITH RECURSIVE known (name) AS (SELECT MIN(name) FROM tally_wide WHERE tenant_id = ? AND kind = ? AND width = ? AND name > ? "
    "UNION ALL SELECT (SELECT MIN(name) FROM tally_wide WHERE tenant_id = ? AND kind = ? AND width = ? AND name > known.name) "
    "FROM known WHERE name IS NOT NULL) SELECT name FROM known WHERE name IS NOT NULL"
)
_INSERT = (
    "INSERT INTO tally_wide (tenant_id, kind, width, name, at, outcome, slot, count, sum_ms, low_ms, high_ms) "
    "SELECT tenant_id, kind, CAST(? AS BIGINT), {name}, at - at % ?, outcome, slot, SUM(count), SUM(sum_ms), MIN(low_ms), "
    "MAX(high_ms) FROM {source} "
    "WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? {narrower} GROUP BY 1, 2, 3, 4, 5, 6, 7"
)


def roll_up() -> int:
    """Sum completed periods of every tenant, one transaction per period; returns the number of periods."""
    settled = clock.now_ms() - SETTLED_MS
    done = 0
    for tenant_id, kind in ((tenant_id, kind) for tenant_id in tenant_ids() for kind in KINDS):
        scope = TenantScope(tenant_id, "system")
        for index, width in enumerate(WIDTHS):
            while db.write(partial(_advance, scope, str(kind), index, settled // width * width)):
                done += 1
        for day in _late_days(scope, str(kind), 0, settled - DAY + 1):
            db.write(partial(_recompute_day, scope, str(kind), day))
            done += 1
    return done


def mark_late(scope: TenantScope, kind: str, minute: int) -> None:
    """Inside the write that counts something for `minute`: mark its day as late if it has already been summed."""
    db.send(
        "INSERT INTO tally_late (tenant_id, kind, at) SELECT tenant_id, kind, CAST(? AS BIGINT) FROM tally_mark "
        "WHERE tenant_id = ? AND kind = ? AND width = ? AND until > ? ON CONFLICT (tenant_id, kind, at) DO NOTHING",
        (minute // DAY * DAY, scope.tenant_id, kind, WIDTHS[0], minute),
    )


def _advance(scope: TenantScope, kind: str, index: int, until: int) -> bool:
    """Inside a write: sum the next period of one width; returns whether there was one."""
    width, narrower = WIDTHS[index], WIDTHS[index - 1] if index else 0
    mark = _mark(scope, kind, width)
    mark_params = (scope.tenant_id, kind, mark or 0)
    ((first,),) = db.rows("SELECT MIN(at) FROM tally WHERE tenant_id = ? AND kind = ? AND at >= ?", mark_params)
    if mark is None:
        if first is None:
            return False
        mark = int(first) // DAY * DAY
    # A gap without counts, even of years, is skipped at once.
    next_mark = until if first is None else min(until, max(mark, int(first) // DAY * DAY) + MAX_PERIOD)
    if narrower:
        next_mark = min(next_mark, (_mark(scope, kind, narrower) or mark) // width * width)
    if next_mark <= mark:
        return False
    # Of two processes, one updates the row first; the other finds that it has moved.
    moved = db.execute(
        "INSERT INTO tally_mark (tenant_id, kind, width, until) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (tenant_id, kind, width) DO UPDATE SET until = excluded.until WHERE tally_mark.until = ?",
        (scope.tenant_id, kind, width, next_mark, mark),
    )
    if not moved:
        return False
    span = (scope.tenant_id, kind, mark, next_mark)
    if narrower:
        of_narrower = (scope.tenant_id, kind, narrower)
        only = f"AND width = ? AND name IN (SELECT '{ALL}' UNION ALL SELECT name FROM ({_NAMES}) AS named)"  # noqa: S608  constants
        params = (width, width, *span, narrower, *of_narrower, ALL, *of_narrower)
        db.execute(_INSERT.format(name="name", source="tally_wide", narrower=only), params)
    else:
        for name in ("name", f"'{ALL}'"):
            db.execute(_INSERT.format(name=name, source="tally", narrower=""), (width, width, *span))
    return True


def _late_days(scope: TenantScope, kind: str, since: int, until: int) -> list[int]:
    """The late days that begin in [since, until), in order."""
    rows = db.rows(
        "SELECT at FROM tally_late WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? ORDER BY at",
        (scope.tenant_id, kind, since, until),
    )
    return [int(at) for (at,) in rows]


def _recompute_day(scope: TenantScope, kind: str, day: int) -> None:
    """Inside a write: recompute the sums of a late day from the counters, whose daily totals survive compaction."""
    span = (scope.tenant_id, kind, day, day + DAY)
    widths = ", ".join(map(str, WIDTHS))
    names = "SELECT name FROM tally WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ?"
    db.execute(
        f"DELETE FROM tally_wide WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? AND width IN ({widths}) "  # noqa: S608
        f"AND name IN (SELECT '{ALL}' UNION {names})",
        (*span, *span),
    )
    for width, (first, until) in _marks(scope, kind).items():
        of_width = (scope.tenant_id, kind, max(day, first), min(day + DAY, until))
        for name in ("name", f"'{ALL}'"):
            db.execute(_INSERT.format(name=name, source="tally", narrower=""), (width, width, *of_width))
    db.execute("DELETE FROM tally_late WHERE tenant_id = ? AND kind = ? AND at = ?", (scope.tenant_id, kind, day))


def _marks(scope: TenantScope, kind: str) -> dict[int, tuple[int, int]]:
    """By width, the period for which sums exist."""
    sql = "SELECT width, since, until FROM tally_mark WHERE tenant_id = ? AND kind = ?"
    return {int(width): (int(since), int(until)) for width, since, until in db.rows(sql, (scope.tenant_id, kind))}


def _mark(scope: TenantScope, kind: str, width: int) -> int | None:
    rows = db.rows(
        "SELECT until FROM tally_mark WHERE tenant_id = ? AND kind = ? AND width = ?", (scope.tenant_id, kind, width)
    )
    return int(rows[0][0]) if rows else None


def pieces(scope: TenantScope, kind: str, since: int, until: int, widest: int) -> Iterator[Piece]:
    """Split [since, until) into pieces to read: from sums of at most `widest` where they exist, otherwise from the counters."""
    marks = _marks(scope, kind)
    widths = [width for width in WIDTHS if width <= widest and widest % width == 0 and width in marks]
    for day in _late_days(scope, kind, since - DAY + 1, until):
        yield from _split(marks, widths, since, day)
        yield 0, max(since, day), min(until, day + DAY)
        since = day + DAY
    yield from _split(marks, widths, since, until)


def _split(marks: dict[int, tuple[int, int]], widths: list[int], since: int, until: int) -> Iterator[Piece]:
    if since >= until:
        return
    if not widths:
        yield 0, since, until
        return
    *narrower, width = widths
    first, mark = marks[width]
    begins, ends = -(-max(since, first) // width) * width, min(until, mark) // width * width
    if begins >= ends:
        yield from _split(marks, narrower, since, until)
        return
    yield from _split(marks, narrower, since, begins)
    yield width, begins, ends
    yield from _split(marks, narrower, ends, until)


def read(scope: TenantScope, kind: str, name: str | None, piece: Piece, bucket: tuple[int, int]) -> list[tuple[Any, ...]]:
    """Rows of (bucket index, result, slot, count, and sum, minimum and maximum in ms); `bucket` is the start of the first one and
    the width."""
    # The casts, here and below: PostgreSQL sums whole numbers as decimal ones.
    width, since, until = piece
    start, wide = bucket
    if width == wide:  # Each row is a bucket's own, and the database need not sort them to add them up.
        return db.rows(
            "SELECT (at - ?) / ?, outcome, slot, count, sum_ms, low_ms, high_ms FROM tally_wide "
            "WHERE tenant_id = ? AND kind = ? AND width = ? AND name = ? AND at >= ? AND at < ?",
            (start, wide, scope.tenant_id, kind, width, ALL if name is None else name, since, until),
        )
    if width:
        return db.rows(
            "SELECT (at - ?) / ?, outcome, slot, CAST(SUM(count) AS BIGINT), SUM(sum_ms), MIN(low_ms), MAX(high_ms) "
            "FROM tally_wide WHERE tenant_id = ? AND kind = ? AND width = ? AND name = ? AND at >= ? AND at < ? GROUP BY 1, 2, 3",
            (start, wide, scope.tenant_id, kind, width, ALL if name is None else name, since, until),
        )
    only, name_params = ("AND name = ? ", (name,)) if name is not None else ("", ())
    return db.rows(
        "SELECT (at - ?) / ?, outcome, slot, CAST(SUM(count) AS BIGINT), SUM(sum_ms), MIN(low_ms), MAX(high_ms) FROM tally "  # noqa: S608
        f"WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? {only}GROUP BY 1, 2, 3",
        (start, wide, scope.tenant_id, kind, since, until, *name_params),
    )


def read_counts(
    scope: TenantScope, kind: str, names: Sequence[str], piece: Piece, bucket: tuple[int, int]
) -> list[tuple[Any, ...]]:
    """Rows of (name, bucket index, result, count) of these names, without durations."""
    width, since, until = piece
    start, wide = bucket
    source, narrower = ("tally_wide", "AND width = ? ") if width else ("tally", "")
    return db.rows(
        f"SELECT name, (at - ?) / ?, outcome, CAST(SUM(count) AS BIGINT) FROM {source} "  # noqa: S608
        f"WHERE tenant_id = ? AND kind = ? {narrower}AND name IN ({', '.join('?' * len(names))}) AND at >= ? AND at < ? "
        "GROUP BY 1, 2, 3",
        (start, wide, scope.tenant_id, kind, *((width,) if width else ()), *names, since, until),
    )


def count_names(scope: TenantScope, kind: str, piece: Piece) -> list[tuple[str, int]]:
    """Rows of (name, count)."""
    width, since, until = piece
    if width:
        of_width = (scope.tenant_id, kind, width)
        return db.rows(
            "SELECT name, CAST(SUM(count) AS BIGINT) FROM tally_wide "  # noqa: S608
            f"WHERE tenant_id = ? AND kind = ? AND width = ? AND name IN ({_NAMES}) AND at >= ? AND at < ? GROUP BY name",
            (*of_width, *of_width, ALL, *of_width, since, until),
        )
    return db.rows(
        "SELECT name, CAST(SUM(count) AS BIGINT) FROM tally WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? GROUP BY name",
        (scope.tenant_id, kind, since, until),
    )


def read_names(scope: TenantScope, kind: str, piece: Piece, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of (name, result, slot, count, and sum, minimum and maximum in ms) of these names."""
    width, since, until = piece
    source, narrower = ("tally_wide", "AND width = ? ") if width else ("tally", "")
    return db.rows(
        f"SELECT name, outcome, slot, CAST(SUM(count) AS BIGINT), SUM(sum_ms), MIN(low_ms), MAX(high_ms) FROM {source} "  # noqa: S608
        f"WHERE tenant_id = ? AND kind = ? {narrower}AND name IN ({', '.join('?' * len(names))}) AND at >= ? AND at < ? "
        "GROUP BY 1, 2, 3",
        (scope.tenant_id, kind, *((width,) if width else ()), *names, since, until),
    )


def purge(before_ms: int) -> int:
    """Delete every tenant's sums from before `before_ms`, and the narrowest ones three days after they were summed further.

    Returns the number of rows; each write deletes a few points of one name, so that it blocks nobody for long.
    """
    narrow = (clock.now_ms() - NARROW_RETENTION) // DAY * DAY
    # Move the start first, so that readers no longer use these sums; then delete them.
    forget = "UPDATE tally_mark SET since = ? WHERE width = ? AND since < ?"
    db.write(partial(db.execute, forget, (narrow, WIDTHS[0], narrow)))
    db.write(partial(db.execute, "DELETE FROM tally_late WHERE at < ?", (before_ms - DAY,)))
    deleted = 0
    for tenant_id, kind, width in itertools.product(tenant_ids(), KINDS, WIDTHS):
        of_width = (tenant_id, kind, width)
        for name in (ALL, *(str(name) for (name,) in db.rows(_NAMES, (*of_width, ALL, *of_width)))):
            deleted += _purge_one((*of_width, name), max(before_ms, narrow) if width == WIDTHS[0] else before_ms)
    return deleted


def _purge_one(series: tuple[Any, ...], before_ms: int) -> int:
    of_it, deleted = "tenant_id = ? AND kind = ? AND width = ? AND name = ?", 0
    while True:
        ((first,),) = db.rows(f"SELECT MIN(at) FROM tally_wide WHERE {of_it}", series)  # noqa: S608
        if first is None or first >= before_ms:
            return deleted
        until = min(before_ms, int(first) + POINTS_PER_WRITE * int(series[2]))
        deleted += db.write(partial(db.execute, f"DELETE FROM tally_wide WHERE {of_it} AND at < ?", (*series, until)))  # noqa: S608
