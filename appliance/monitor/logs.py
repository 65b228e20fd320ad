"""Log lines of tenants: what executions, steps and the appliance had to say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.core import db
from appliance.core.errors import ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope

from .models import LogLine
from .retention import delete_older
from .storable import storable_json, storable_text

LEVELS: Mapping[str, int] = {"debug": 10, "info": 20, "warn": 30, "error": 40}
MESSAGE_BYTES = 8 << 10
FIELDS_BYTES = 8 << 10
_NAMES = {rank: name for name, rank in LEVELS.items()}
_UNKNOWN = LEVELS["info"]
_ROWS = 500
_COLUMNS = "tenant_id, at, level, source, message, fields, execution_id, process_id, step, request_id"
_PLACES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `at` in epoch milliseconds, `source` names who speaks (`step`, `process`, `integration`).

    Step code chooses `level` and `fields`, and no commit may fail for them: an unknown level is kept as `info`,
    fields that are no object as `{"value": …}`.
    """

    at: int
    level: str
    source: str
    message: str
    fields: Any = None
    execution_id: str | None = None
    process_id: str | None = None
    step: str | None = None
    request_id: str | None = None


@dataclass(frozen=True)
class LineFilter:
    """Which lines: `text` in message or fields, `level` and above, times in epoch milliseconds [since, until)."""

    text: str | None = None
    level: str | None = None
    source: str | None = None
    execution_id: str | None = None
    process_id: str | None = None
    since: int | None = None
    until: int | None = None


def write_lines(scope: TenantScope, lines: Sequence[Line]) -> None:
    """Inside a write: keep `lines`, redacted and cut to 8 KiB of message and 8 KiB of fields each."""
    for start in range(0, len(lines), _ROWS):
        part = lines[start : start + _ROWS]
        values: list[Any] = []
        for line in part:
            values += (
                scope.tenant_id, line.at, LEVELS.get(line.level, _UNKNOWN), storable_text(line.source, 100),
                storable_text(line.message, MESSAGE_BYTES), storable_json(line.fields, FIELDS_BYTES),
                line.execution_id, line.process_id, line.step, line.request_id,
            )  # fmt: skip
        places = ", ".join([_PLACES] * len(part))
        db.execute(f"INSERT INTO log_line ({_COLUMNS}) VALUES {places}", tuple(values))  # noqa: S608


def list_lines(scope: TenantScope, wanted: LineFilter, page: PageRequest) -> Page[Line]:
    """The lines that match, newest first; `sort=at` turns it round."""
    query = _matching(scope.select(LogLine), wanted)
    return paginate(query, page, {"at": LogLine.at, "id": LogLine.id}, default="-at").map(_line)


def last_number() -> int:
    """The number of the newest line of all tenants, where following begins; 0 when there is none.

    By number, not by time: a line may be kept later than one that says a later time.
    """
    ((number,),) = db.rows("SELECT MAX(id) FROM log_line")
    return int(number or 0)


def list_lines_after(scope: TenantScope, wanted: LineFilter, number: int, limit: int = 500) -> list[tuple[int, Line]]:
    """Matching lines that were kept after the line `number`, oldest first, with their numbers."""
    query = _matching(scope.select(LogLine), wanted).where(LogLine.id > number)
    return [(row.id, _line(row)) for row in query.order_by(LogLine.id).limit(limit)]


def purge(before_ms: int) -> int:
    """Delete every tenant's lines from before `before_ms`; answers how many."""
    return delete_older("log_line", "id", "at", before_ms)


def _matching(query: Any, wanted: LineFilter) -> Any:
    if wanted.level is not None:
        if wanted.level not in LEVELS:
            raise ValidationFailed(f"level must be one of {', '.join(LEVELS)}", pointer="/level")
        query = query.where(LogLine.level >= LEVELS[wanted.level])
    for column, value in (
        (LogLine.source, wanted.source),
        (LogLine.execution_id, wanted.execution_id),
        (LogLine.process_id, wanted.process_id),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.text:
        query = query.where(LogLine.message.contains(wanted.text) | LogLine.fields.cast("TEXT").contains(wanted.text))
    if wanted.since is not None:
        query = query.where(LogLine.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(LogLine.at < wanted.until)
    return query


def _line(row: Any) -> Line:
    return Line(
        row.at, _NAMES[row.level], row.source, row.message, row.fields, row.execution_id, row.process_id, row.step,
        row.request_id,
    )  # fmt: skip
