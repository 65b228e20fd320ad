"""Counters summed up over wider times, each name by itself and all together, behind the counters of minutes.

What is summed up is over: a mark says until when, and what lies behind it is read from the counters themselves.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from appliance.core import clock, db
from appliance.core.scope import TenantScope

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WIDTHS = (15 * MINUTE, HOUR, 6 * HOUR, DAY)
ALL = ""
"""The name under which everything of a kind is summed up; nothing is called so."""
SETTLED_MS = 5 * MINUTE
"""After so long nothing is counted for a minute any more, whatever process counted it."""
AT_ONCE = 4 * DAY

Piece = tuple[int, int, int]  # width (0: the counters themselves), from, to

_INSERT = (
    "INSERT INTO tally_wide (tenant_id, kind, width, name, at, outcome, slot, count, sum_ms) "
    "SELECT tenant_id, kind, CAST(? AS BIGINT), {name}, at - at % ?, outcome, slot, SUM(count), SUM(sum_ms) FROM {source} "
    "WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? {narrower} GROUP BY 1, 2, 3, 4, 5, 6, 7"
)


def roll_up() -> int:
    """Sum up what is over, of every tenant; answers how many spans were.  Each span is one transaction."""
    settled = clock.now_ms() - SETTLED_MS
    done = 0
    for tenant_id, kind in db.rows("SELECT t.id, k.kind FROM tenant t CROSS JOIN (SELECT 'execution' AS kind UNION ALL "
                                   "SELECT 'step' UNION ALL SELECT 'integration') k ORDER BY 1, 2"):  # fmt: skip
        scope = TenantScope(str(tenant_id), "system")
        for index, width in enumerate(WIDTHS):
            while db.write(partial(_advance, scope, str(kind), index, settled // width * width)):
                done += 1
    return done


def _advance(scope: TenantScope, kind: str, index: int, until: int) -> bool:
    """Inside a write: sum up the next span of one width; whether there was one."""
    width, narrower = WIDTHS[index], WIDTHS[index - 1] if index else 0
    mark = _mark(scope, kind, width)
    if mark is None:
        ((first,),) = db.rows("SELECT MIN(at) FROM tally WHERE tenant_id = ? AND kind = ?", (scope.tenant_id, kind))
        if first is None:
            return False
        mark = int(first) // DAY * DAY
    reached = min(until, mark + AT_ONCE)
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
        db.execute(_INSERT.format(name="name", source="tally_wide", narrower="AND width = ?"), (width, width, *span, narrower))
    else:
        for name in ("name", f"'{ALL}'"):
            db.execute(_INSERT.format(name=name, source="tally", narrower=""), (width, width, *span))
    return True


def _mark(scope: TenantScope, kind: str, width: int) -> int | None:
    found = db.rows(
        "SELECT until FROM tally_mark WHERE tenant_id = ? AND kind = ? AND width = ?", (scope.tenant_id, kind, width)
    )
    return int(found[0][0]) if found else None


def pieces(scope: TenantScope, kind: str, since: int, until: int, widest: int) -> Iterator[Piece]:
    """How [since, until) is read: from the sums of at most `widest` where they are made, else from the counters."""
    marks = {
        int(width): int(at)
        for width, at in db.rows("SELECT width, until FROM tally_mark WHERE tenant_id = ? AND kind = ?", (scope.tenant_id, kind))
    }
    widths = [width for width in WIDTHS if width <= widest and widest % width == 0 and width in marks]
    yield from _split(marks, widths, since, until)


def _split(marks: dict[int, int], widths: list[int], since: int, until: int) -> Iterator[Piece]:
    if since >= until:
        return
    if not widths:
        yield 0, since, until
        return
    *narrower, width = widths
    begins, ends = -(-since // width) * width, min(until, marks[width]) // width * width
    if begins >= ends:
        yield from _split(marks, narrower, since, until)
        return
    yield from _split(marks, narrower, since, begins)
    yield width, begins, ends
    yield from _split(marks, narrower, ends, until)


def read(scope: TenantScope, kind: str, name: str | None, piece: Piece, bucket: tuple[int, int]) -> list[tuple[Any, ...]]:
    """Rows of (index of the bucket, outcome, slot, count, sum in ms); `bucket` is where the first begins and how wide it is."""
    width, since, until = piece
    start, wide = bucket
    if width:
        return db.rows(
            "SELECT (at - ?) / ?, outcome, slot, SUM(count), SUM(sum_ms) FROM tally_wide WHERE tenant_id = ? AND kind = ? "
            "AND width = ? AND name = ? AND at >= ? AND at < ? GROUP BY 1, 2, 3",
            (start, wide, scope.tenant_id, kind, width, ALL if name is None else name, since, until),
        )
    only, named = ("AND name = ? ", (name,)) if name is not None else ("", ())
    return db.rows(
        "SELECT (at - ?) / ?, outcome, slot, SUM(count), SUM(sum_ms) FROM tally "  # noqa: S608
        f"WHERE tenant_id = ? AND kind = ? AND at >= ? AND at < ? {only}GROUP BY 1, 2, 3",
        (start, wide, scope.tenant_id, kind, since, until, *named),
    )


def read_names(scope: TenantScope, kind: str, piece: Piece) -> list[tuple[Any, ...]]:
    """Rows of (name, outcome, slot, count, sum in ms)."""
    width, since, until = piece
    source, narrower = ("tally_wide", "AND width = ? AND name <> '' ") if width else ("tally", "")
    return db.rows(
        f"SELECT name, outcome, slot, SUM(count), SUM(sum_ms) FROM {source} "  # noqa: S608
        f"WHERE tenant_id = ? AND kind = ? {narrower}AND at >= ? AND at < ? GROUP BY 1, 2, 3",
        (scope.tenant_id, kind, *((width,) if width else ()), since, until),
    )


def purge(before_ms: int) -> None:
    """Delete every tenant's sums of before `before_ms`, and narrow ones three days after they were summed up further."""
    oldest = clock.now_ms() - 3 * DAY
    db.write(partial(db.execute, "DELETE FROM tally_wide WHERE at < ? OR (width = ? AND at < ?)", (before_ms, WIDTHS[0], oldest)))
