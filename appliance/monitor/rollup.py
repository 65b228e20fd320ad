"""Counters summed up over wider times, each name by itself and all together, behind the counters of minutes.

What is summed up is over: a mark says until when, and what lies behind it is read from the counters themselves.  Should
something be counted for a time before the mark all the same, because a clock ran ahead or behind, its day is late: it is read
from the counters until, once it is over, its sums are made anew.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.scope import TenantScope

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WIDTHS = (15 * MINUTE, HOUR, 6 * HOUR, DAY)
KINDS = ("execution", "waiting", "step", "integration", "key", "key_bytes", "webapp", "webapp_bytes")
ALL = ""
"""The name under which everything of a kind is summed up; nothing is called so."""
SETTLED_MS = 5 * MINUTE
"""After so long nothing is counted for a minute any more, whatever process counted it."""
AT_ONCE = 4 * DAY
NARROW_KEPT = 3 * DAY
POINTS_AT_ONCE = 50
"""How many points of one name a write of `purge` deletes; each has a row per outcome and slot."""

Piece = tuple[int, int, int]  # width (0: the counters themselves), from, to

# The names above one, each found by the key.  Of a time alone, without them, a store would read all times of all names.
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
    """Sum up what is over, of every tenant; answers how many spans were.  Each span is one transaction."""
    settled = clock.now_ms() - SETTLED_MS
    done = 0
    for tenant_id, kind in ((tenant_id, kind) for (tenant_id,) in db.rows("SELECT id FROM tenant ORDER BY id") for kind in KINDS):
        scope = TenantScope(str(tenant_id), "system")
        for index, width in enumerate(WIDTHS):
            while db.write(partial(_advance, scope, str(kind), index, settled // width * width)):
                done += 1
        for day in _late_days(scope, str(kind), 0, settled - DAY + 1):
            db.write(partial(_sum_up_anew, scope, str(kind), day))
            done += 1
    return done


def note_late(scope: TenantScope, kind: str, minute: int) -> None:
    """Inside the write that counts something for `minute`: remember its day if that is summed up already."""
    db.execute(
        "INSERT INTO tally_late (tenant_id, kind, at) SELECT tenant_id, kind, CAST(? AS BIGINT) FROM tally_mark "
        "WHERE tenant_id = ? AND kind = ? AND width = ? AND until > ? ON CONFLICT (tenant_id, kind, at) DO NOTHING",
        (minute // DAY * DAY, scope.tenant_id, kind, WIDTHS[0], minute),
    )


def _advance(scope: TenantScope, kind: str, index: int, until: int) -> bool:
    """Inside a write: sum up the next span of one width; whether there was one."""
    width, narrower = WIDTHS[index], WIDTHS[index - 1] if index else 0
    mark = _mark(scope, kind, width)
    told = (scope.tenant_id, kind, mark or 0)
    ((first,),) = db.rows("SELECT MIN(at) FROM tally WHERE tenant_id = ? AND kind = ? AND at >= ?", told)
    if mark is None:
        if first is None:
            return False
        mark = int(first) // DAY * DAY
    # A time in which nothing was counted, be it years, is passed at once.
    reached = until if first is None else min(until, max(mark, int(first) // DAY * DAY) + AT_ONCE)
    if narrower:
        reached = min(reached, (_mark(scope, kind, narrower) or mark) // width * width)
    if reached <= mark:
        return False
    # Of two processes one has the row first; the other finds that it moved.
    moved = db.execute(
        "INSERT INTO tally_mark (tenant_id, kind, width, until) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (tenant_id, kind, width) DO UPDATE SET until = excluded.until WHERE tally_mark.until = ?",
        (scope.tenant_id, kind, width, reached, mark),
    )
    if not moved:
        return False
    span = (scope.tenant_id, kind, mark, reached)
    if narrower:
        of_narrower = (scope.tenant_id, kind, narrower)
        only = f"AND width = ? AND name IN (SELECT '{ALL}' UNION ALL SELECT name FROM ({_NAMES}) AS named)"  # noqa: S608  ours
        params = (width, width, *span, narrower, *of_narrower, ALL, *of_narrower)
        db.execute(_INSERT.format(name="name", source="tally_wide", narrower=only), params)
    else:
        for name in ("name", f"'{ALL}'"):
            db.execute(_INSERT.format(name=name, source="tally", narrower=""), (width, width, *span))
    return True


def _late_days(scope: TenantScope, kind: str, since: int, until: int) -> list[int]:
    """The late days that begin in [since, until), in order."""
    found = db.rows(
        "SELECT at FROM tally_late WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? ORDER BY at",
        (scope.tenant_id, kind, since, until),
    )
    return [int(at) for (at,) in found]


def _sum_up_anew(scope: TenantScope, kind: str, day: int) -> None:
    """Inside a write: the sums of a late day, all from the counters, whose totals of a day stay when they are merged."""
    span = (scope.tenant_id, kind, day, day + DAY)
    widths = ", ".join(map(str, WIDTHS))
    names = "SELECT name FROM tally WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ?"
    db.execute(
        f"DELETE FROM tally_wide WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? AND width IN ({widths}) "  # noqa: S608
        f"AND name IN (SELECT '{ALL}' UNION {names})",
        (*span, *span),
    )
    for width, (kept, until) in _marks(scope, kind).items():
        of_width = (scope.tenant_id, kind, max(day, kept), min(day + DAY, until))
        for name in ("name", f"'{ALL}'"):
            db.execute(_INSERT.format(name=name, source="tally", narrower=""), (width, width, *of_width))
    db.execute("DELETE FROM tally_late WHERE tenant_id = ? AND kind = ? AND at = ?", (scope.tenant_id, kind, day))


def _marks(scope: TenantScope, kind: str) -> dict[int, tuple[int, int]]:
    """By width from when to when its sums are there."""
    sql = "SELECT width, since, until FROM tally_mark WHERE tenant_id = ? AND kind = ?"
    return {int(width): (int(since), int(until)) for width, since, until in db.rows(sql, (scope.tenant_id, kind))}


def _mark(scope: TenantScope, kind: str, width: int) -> int | None:
    found = db.rows(
        "SELECT until FROM tally_mark WHERE tenant_id = ? AND kind = ? AND width = ?", (scope.tenant_id, kind, width)
    )
    return int(found[0][0]) if found else None


def pieces(scope: TenantScope, kind: str, since: int, until: int, widest: int) -> Iterator[Piece]:
    """How [since, until) is read: from the sums of at most `widest` where they are made, else from the counters."""
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
    kept, mark = marks[width]
    begins, ends = -(-max(since, kept) // width) * width, min(until, mark) // width * width
    if begins >= ends:
        yield from _split(marks, narrower, since, until)
        return
    yield from _split(marks, narrower, since, begins)
    yield width, begins, ends
    yield from _split(marks, narrower, ends, until)


def read(scope: TenantScope, kind: str, name: str | None, piece: Piece, bucket: tuple[int, int]) -> list[tuple[Any, ...]]:
    """Rows of (index of the bucket, outcome, slot, count, and in ms the sum, shortest and longest); `bucket` is where the first
    begins and how wide it is."""
    width, since, until = piece
    start, wide = bucket
    if width:
        return db.rows(
            "SELECT (at - ?) / ?, outcome, slot, SUM(count), SUM(sum_ms), MIN(low_ms), MAX(high_ms) FROM tally_wide "
            "WHERE tenant_id = ? AND kind = ? AND width = ? AND name = ? AND at >= ? AND at < ? GROUP BY 1, 2, 3",
            (start, wide, scope.tenant_id, kind, width, ALL if name is None else name, since, until),
        )
    only, named = ("AND name = ? ", (name,)) if name is not None else ("", ())
    return db.rows(
        "SELECT (at - ?) / ?, outcome, slot, SUM(count), SUM(sum_ms), MIN(low_ms), MAX(high_ms) FROM tally "  # noqa: S608
        f"WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? {only}GROUP BY 1, 2, 3",
        (start, wide, scope.tenant_id, kind, since, until, *named),
    )


def read_counts(
    scope: TenantScope, kind: str, names: Sequence[str], piece: Piece, bucket: tuple[int, int]
) -> list[tuple[Any, ...]]:
    """Rows of (name, index of the bucket, outcome, count, sum in ms) of these names; durations are not told apart."""
    width, since, until = piece
    start, wide = bucket
    source, narrower = ("tally_wide", "AND width = ? ") if width else ("tally", "")
    return db.rows(
        f"SELECT name, (at - ?) / ?, outcome, SUM(count), SUM(sum_ms) FROM {source} "  # noqa: S608
        f"WHERE tenant_id = ? AND kind = ? {narrower}AND name IN ({', '.join('?' * len(names))}) AND at >= ? AND at < ? "
        "GROUP BY 1, 2, 3",
        (start, wide, scope.tenant_id, kind, *((width,) if width else ()), *names, since, until),
    )


def read_names(scope: TenantScope, kind: str, piece: Piece) -> list[tuple[Any, ...]]:
    """Rows of (name, outcome, slot, count, and in ms the sum, shortest and longest)."""
    width, since, until = piece
    if width:
        of_width = (scope.tenant_id, kind, width)
        return db.rows(
            "SELECT name, outcome, slot, SUM(count), SUM(sum_ms), MIN(low_ms), MAX(high_ms) FROM tally_wide "  # noqa: S608
            f"WHERE tenant_id = ? AND kind = ? AND width = ? AND name IN ({_NAMES}) AND at >= ? AND at < ? GROUP BY 1, 2, 3",
            (*of_width, *of_width, ALL, *of_width, since, until),
        )
    return db.rows(
        "SELECT name, outcome, slot, SUM(count), SUM(sum_ms), MIN(low_ms), MAX(high_ms) FROM tally "
        "WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? GROUP BY 1, 2, 3",
        (scope.tenant_id, kind, since, until),
    )


def purge(before_ms: int) -> int:
    """Delete every tenant's sums of before `before_ms`, and narrow ones three days after they were summed up further.

    Answers how many rows; a few points of one name are one write, so that nobody waits for it.
    """
    narrow = (clock.now_ms() - NARROW_KEPT) // DAY * DAY
    # First nobody reads them any more, then they go.
    forget = "UPDATE tally_mark SET since = ? WHERE width = ? AND since < ?"
    db.write(partial(db.execute, forget, (narrow, WIDTHS[0], narrow)))
    db.write(partial(db.execute, "DELETE FROM tally_late WHERE at < ?", (before_ms - DAY,)))
    deleted, last = 0, ("", "", 0, "")
    while series := db.rows(
        "SELECT tenant_id, kind, width, name FROM tally_wide WHERE (tenant_id, kind, width, name) > (?, ?, ?, ?) "
        "ORDER BY tenant_id, kind, width, name LIMIT 1", last
    ):  # fmt: skip
        last = series[0]
        deleted += _purge_one(last, max(before_ms, narrow) if last[2] == WIDTHS[0] else before_ms)
    return deleted


def _purge_one(series: tuple[Any, ...], before_ms: int) -> int:
    of_it, deleted = "tenant_id = ? AND kind = ? AND width = ? AND name = ?", 0
    while True:
        ((first,),) = db.rows(f"SELECT MIN(at) FROM tally_wide WHERE {of_it}", series)  # noqa: S608
        if first is None or first >= before_ms:
            return deleted
        until = min(before_ms, int(first) + POINTS_AT_ONCE * int(series[2]))
        deleted += db.write(partial(db.execute, f"DELETE FROM tally_wide WHERE {of_it} AND at < ?", (*series, until)))  # noqa: S608
