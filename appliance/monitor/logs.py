"""Log lines of tenants, from executions, steps and the appliance: storage, search and tailing."""

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
from .retention import delete_older_by_number
from .storable import storable_json, storable_text

LEVELS: Mapping[str, int] = {"debug": 10, "info": 20, "warn": 30, "error": 40}
MESSAGE_BYTES = 8 << 10
FIELDS_BYTES = 8 << 10
_NAMES = {rank: name for name, rank in LEVELS.items()}
_UNKNOWN = LEVELS["info"]
_ROWS = 500
TABLE = "log_line"
MAX_LINES = 500
BATCH_SIZE = 1_000
MANY_MATCHES = 2_000
_COLUMNS = "tenant_id, at, level, source, message, fields, execution_id, process_id, step, request_id, words"
_PLACES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ESCAPED = re.compile(r"\\(?:u[0-9a-f]{4}|.)")  # in JSON; never part of a word


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `at` in epoch milliseconds, `source` names the origin (`step`, `process`, `integration`).

    Step code chooses `level` and `fields`, which must never make a commit fail: an unknown level is stored as `info`,
    fields that are not an object as `{"value": …}`.
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
    """Criteria of lines: each word of `text` starts a word of message, fields or ids; `level` and above; times in ms."""

    text: str | None = None
    level: str | None = None
    source: str | None = None
    execution_id: str | None = None
    process_id: str | None = None
    since: int | None = None
    until: int | None = None


def write_lines(scope: TenantScope, lines: Sequence[Line]) -> None:
    """Inside a write: store lines, redacted and truncated to 8 KiB of message and 8 KiB of fields each."""
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
        full_text.insert_followed(TABLE, f"INSERT INTO log_line ({_COLUMNS}) VALUES {places}", tuple(values))  # noqa: S608


def _words(message: str, fields: str, *ids: str | None) -> str:
    return full_text.fold_text(" ".join((message, _ESCAPED.sub(" ", fields), *filter(None, ids))))


def index_older() -> int:
    """Index lines stored before the word index existed, newest first; returns their number.

    Each batch is a separate write, so this can be interrupted at any time.
    """
    done = 0
    while unindexed := db.rows(
        "SELECT id, message, fields, execution_id, process_id, step, request_id FROM log_line WHERE words IS NULL "
        "ORDER BY id DESC LIMIT ?", (BATCH_SIZE,)
    ):  # fmt: skip
        indexed = [(_words(*texts), int(number)) for number, *texts in unindexed]
        done += db.write(partial(_store_words, indexed))
    return done


def _store_words(indexed: Sequence[tuple[str, int]]) -> int:
    """Inside a write: store the words of these lines."""
    done = 0
    for words, number in indexed:
        if db.execute("UPDATE log_line SET words = ? WHERE id = ? AND words IS NULL", (words, number)):
            full_text.add(TABLE, number)
            done += 1
    return done


def remove_from_index(scope: TenantScope) -> None:
    """Inside the write that deletes the tenant: remove its lines from the search index."""
    full_text.remove(TABLE, "tenant_id = ?", (scope.tenant_id,))


def list_lines(scope: TenantScope, filters: LineFilter, page: PageRequest) -> Page[Line]:
    """The matching lines, newest first; `sort=at` reverses the order."""
    query = _matching(scope.select(LogLine), filters)
    return paginate(query, page, {"at": LogLine.at, "id": LogLine.id}, default="-at").map(_from_row)


def last_number() -> int:
    """The number of the newest line of all tenants, where tailing begins; 0 if there is none.

    By number, not by time: a line may be stored after another one with a later time.
    """
    ((number,),) = db.rows("SELECT MAX(id) FROM log_line")
    return int(number or 0)


class Tail:
    """Yields matching lines after line `number` in the order they are stored, without gaps and duplicates.

    `since` only filters lines stored before the tail began.  Later lines are included whatever their time: a long step's lines
    are stored at its end, and a clock may be set back.
    """

    def __init__(self, scope: TenantScope, filters: LineFilter, number: int) -> None:
        self._scope, self._filters, self._number = scope, replace(filters, since=None), number
        self._since, self._newest = filters.since, last_number()
        self.is_behind = False

    def read(self, *, only_newest: bool = False) -> list[Line]:
        """Lines stored since the last call, oldest first, at most 500; `is_behind` says whether there are more.

        With `only_newest`, older lines beyond that are skipped, for readers that keep no more anyway.
        """
        until = last_number()
        between = (LogLine.id > self._number) & (LogLine.id <= until)
        query = _matching(self._scope.select(LogLine), self._filters, self._number).where(between)
        if self._since is not None and self._number < self._newest:
            query = query.where((LogLine.at >= self._since) | (LogLine.id > self._newest))
        order = LogLine.id.desc() if only_newest else LogLine.id
        lines = [_from_row(row) for row in query.order_by(order).limit(MAX_LINES)] if until > self._number else []
        self.is_behind = len(lines) == MAX_LINES and not only_newest
        # Lines that do not match are not examined again.
        self._number = lines[-1].number if self.is_behind else max(self._number, until)
        return lines[::-1] if only_newest else lines


def purge(before_ms: int) -> int:
    """Delete every tenant's lines from before `before_ms`; returns their number."""
    return delete_older_by_number(TABLE, "id", "at", before_ms, is_searched=True)


def _matching(query: Any, filters: LineFilter, after: int = 0) -> Any:
    if filters.level is not None:
        if filters.level not in LEVELS:
            raise ValidationFailed(Sentence("level must be one of %(levels)s", levels=', '.join(LEVELS)), pointer="/level")
        rank = LEVELS[filters.level]
        if rank >= LEVELS["warn"]:
            query = query.where(LogLine.level >= SQL(str(LEVELS["warn"])))  # Written out as in the index `log_line_warning`.
        query = query.where(LogLine.level >= rank)
    for column, value in (
        (LogLine.source, filters.source),
        (LogLine.execution_id, filters.execution_id),
        (LogLine.process_id, filters.process_id),
    ):
        if value is not None:
            query = query.where(column == value)
    if filters.text:
        query = _with_words(query, full_text.parse_search(filters.text, "/text"), after)
    if filters.since is not None:
        query = query.where(LogLine.at >= filters.since)
    if filters.until is not None:
        query = query.where(LogLine.at < filters.until)
    return query


def _with_words(query: Any, words: Sequence[str], after: int) -> Any:
    """Only the lines above `after` with these words.

    Few are looked up in the index, and their times bound the lines that are read; with many, reading from the newest line finds
    enough of them soon, while fetching all of them from the index would take longer.
    """
    ids = full_text.find_ids(TABLE, words, after, MANY_MATCHES)
    if len(ids) == MANY_MATCHES:
        condition, params = full_text.frequent_words(words)
        return query.where(SQL(db.database.obj.statement(condition), params))
    if not ids:
        return query.where(SQL("1 = 0"))
    places = ", ".join("?" * len(ids))
    ((first, last),) = db.rows(f"SELECT MIN(at), MAX(at) FROM log_line WHERE id IN ({places})", tuple(ids))  # noqa: S608
    return query.where(LogLine.id.in_(ids) & LogLine.at.between(first, last))


def _from_row(row: Any) -> Line:
    return Line(
        at=row.at, level=_NAMES[row.level], source=row.source, message=row.message, fields=row.fields,
        execution_id=row.execution_id, process_id=row.process_id, step=row.step, request_id=row.request_id, number=row.id,
    )  # fmt: skip
