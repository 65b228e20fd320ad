"""Log lines of tenants: what executions, steps and the appliance had to say; kept, searched and followed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from peewee import SQL

from appliance.core.database import db, full_text
from appliance.core.errors import ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from .models import LogLine
from .retention import delete_older
from .storable import storable_json, storable_text

LEVELS: Mapping[str, int] = {"debug": 10, "info": 20, "warn": 30, "error": 40}
MESSAGE_BYTES = 8 << 10
FIELDS_BYTES = 8 << 10
_NAMES = {rank: name for name, rank in LEVELS.items()}
_UNKNOWN = LEVELS["info"]
_ROWS = 500
TABLE = "log_line"
AT_ONCE = 500
READ_AT_ONCE = 1_000
_COLUMNS = "tenant_id, at, level, source, message, fields, execution_id, process_id, step, request_id, words"
_PLACES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ESCAPED = re.compile(r"\\(?:u[0-9a-f]{4}|.)")  # in JSON; none of them belongs to a word


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
    number: int = field(default=0, compare=False)


@dataclass(frozen=True)
class LineFilter:
    """Which lines: each word of `text` begins one of message, fields or ids; `level` and above; [since, until) in epoch ms."""

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
            message, fields = storable_text(line.message, MESSAGE_BYTES), storable_json(line.fields, FIELDS_BYTES)
            ids = (line.execution_id, line.process_id, line.step, line.request_id)
            values += (
                scope.tenant_id, line.at, LEVELS.get(line.level, _UNKNOWN), storable_text(line.source, 100), message, fields,
                *ids, _words(message, fields, *ids),
            )  # fmt: skip
        places = ", ".join([_PLACES] * len(part))
        made = db.rows(f"INSERT INTO log_line ({_COLUMNS}) VALUES {places} RETURNING id", tuple(values))  # noqa: S608
        numbers = [int(number) for (number,) in made]
        full_text.add_range(TABLE, min(numbers), max(numbers))


def _words(message: str, fields: str, *ids: str | None) -> str:
    return full_text.distinct_words(" ".join((message, _ESCAPED.sub(" ", fields), *filter(None, ids))))


def read_older() -> int:
    """Give words to lines that were kept before lines had any, the newest first; answers how many.

    Each part is a write of its own, and all may be stopped anywhere.
    """
    done = 0
    while unread := db.rows(
        "SELECT id, message, fields, execution_id, process_id, step, request_id FROM log_line WHERE words IS NULL "
        "ORDER BY id DESC LIMIT ?", (READ_AT_ONCE,)
    ):  # fmt: skip
        found = [(_words(*texts), int(number)) for number, *texts in unread]
        done += db.write(partial(_store_words, found))
    return done


def _store_words(found: Sequence[tuple[str, int]]) -> int:
    """Inside a write."""
    done = 0
    for words, number in found:
        if db.execute("UPDATE log_line SET words = ? WHERE id = ? AND words IS NULL", (words, number)):
            full_text.add(TABLE, number)
            done += 1
    return done


def forget_words(scope: TenantScope) -> None:
    """Inside the write that deletes the tenant: its lines are searched no more."""
    full_text.remove(TABLE, "tenant_id = ?", (scope.tenant_id,))


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


class Tail:
    """Matching lines as they are kept, from after the line `number` on: none is left out and none comes twice.

    `since` chooses among the lines that are there already.  One that is kept later comes whatever time it says: a long step's are
    kept at its end, and a clock may be set back.
    """

    def __init__(self, scope: TenantScope, wanted: LineFilter, number: int) -> None:
        self._scope, self._wanted, self._number = scope, replace(wanted, since=None), number
        self._since, self._newest = wanted.since, last_number()
        self.is_behind = False

    def look(self, *, only_newest: bool = False) -> list[Line]:
        """What was kept since the last look, oldest first, at most 500; `is_behind` says whether there is more already.

        With `only_newest` what does not fit is passed over, for a reader who keeps no more anyway.
        """
        until = last_number()
        between = (LogLine.id > self._number) & (LogLine.id <= until)
        query = _matching(self._scope.select(LogLine), self._wanted, self._number).where(between)
        if self._since is not None and self._number < self._newest:
            query = query.where((LogLine.at >= self._since) | (LogLine.id > self._newest))
        order = LogLine.id.desc() if only_newest else LogLine.id
        lines = [_line(row) for row in query.order_by(order).limit(AT_ONCE)] if until > self._number else []
        self.is_behind = len(lines) == AT_ONCE and not only_newest
        # What does not match is not looked at again.
        self._number = lines[-1].number if self.is_behind else max(self._number, until)
        return lines[::-1] if only_newest else lines


def purge(before_ms: int) -> int:
    """Delete every tenant's lines from before `before_ms`; answers how many."""
    return delete_older(TABLE, "id", "at", before_ms, is_searched=True)


def _matching(query: Any, wanted: LineFilter, after: int = 0) -> Any:
    if wanted.level is not None:
        if wanted.level not in LEVELS:
            raise ValidationFailed(Sentence("level must be one of %(levels)s", levels=', '.join(LEVELS)), pointer="/level")
        query = query.where(LogLine.level >= LEVELS[wanted.level])
    for column, value in (
        (LogLine.source, wanted.source),
        (LogLine.execution_id, wanted.execution_id),
        (LogLine.process_id, wanted.process_id),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.text:
        matching, words = full_text.matching_ids(TABLE, full_text.search_words(wanted.text, "/text"), after)
        query = query.where(LogLine.id.in_(SQL(db.database.obj.statement(matching), (words,))))
    if wanted.since is not None:
        query = query.where(LogLine.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(LogLine.at < wanted.until)
    return query


def _line(row: Any) -> Line:
    return Line(
        row.at, _NAMES[row.level], row.source, row.message, row.fields, row.execution_id, row.process_id, row.step,
        row.request_id, row.id,
    )  # fmt: skip
