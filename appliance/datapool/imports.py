"""Import of CSV and NDJSON: every row is stored or reported by line and field; nothing is lost silently."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any, BinaryIO, Literal, NoReturn, TextIO

from appliance.blobs import quota
from appliance.core.database import db
from appliance.core.errors import Detail, PayloadTooLarge, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import batch
from appliance.datapool.batch import Operation
from appliance.datapool.compiled import CompiledCollection, load
from appliance.datapool.definition import RESERVED_FIELDS, Findings
from appliance.datapool.entities import Outcome
from appliance.datapool.field_types import FIELD_TYPES, Refused

ROWS_AT_ONCE = 500
MAX_ROWS_AT_ONCE = 20_000
MAX_ERRORS, MOST_DETAILS = 1_000, 100
MAX_LINE = 1 << 20
FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")

_WITH_COMMA = re.compile(r"[-+]?(\d{1,3}([.]\d{3})+|\d+)(,\d+)?", re.ASCII)

csv.field_size_limit(MAX_LINE)


@dataclass(frozen=True)
class ImportOptions:
    """How to import: `key` makes rows upserts; `on_error` stores the good rows, or with `refuse` none unless all are good.

    `in_write` says that the caller's own transaction contains the import.  `columns` leads from members of
    NDJSON to fields, `fields` has the field of each column of a CSV, by position, empty for one that is left out; without
    them they are named as the fields are.  `in_parts` tries out a file of any
    length part by part: two rows of it that cannot both be stored are then found by the import alone.  `decimal` is the
    sign of numbers in CSV before their fraction; with a comma the point separates thousands (`1.234,50`).
    """

    format: Literal["csv", "ndjson"] = "csv"
    key: tuple[str, ...] = ()
    on_error: Literal["report", "refuse"] = "report"
    dry_run: bool = False
    delimiter: str = ""
    in_write: bool = False
    columns: Mapping[str, str] | None = None
    fields: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    in_parts: bool = False
    empty: str = ""
    decimal: Literal[".", ","] = "."

    @property
    def at_once(self) -> bool:
        return self.on_error == "refuse" or (self.dry_run and not self.in_parts)


@dataclass
class ImportReport:
    """What became of the rows; `errors` holds the first 1,000, `error_count` counts all."""

    rows: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    failed: int = 0
    stored: bool = True
    ignored_columns: list[str] = field(default_factory=list)
    error_count: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)

    def add_error(self, line: int, field_name: str | None, code: str, message: str) -> None:
        self.error_count += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append({"line": line, "field": field_name, "code": code, "message": message})

    def refusal(self) -> ValidationFailed:
        """Why nothing was stored, with a detail for each of the first 100 problems (pointers `/lines/<line>/<field>`)."""
        details = [
            Detail(f"/lines/{error['line']}" + (f"/{error['field']}" if error["field"] else ""), error["code"], error["message"])
            for error in self.errors[:MOST_DETAILS]
        ]
        told = Sentence(
            "%(failed)s of %(rows)s rows cannot be stored, so nothing was; mend them, or import with on_error=report",
            failed=self.failed, rows=self.rows,
        )
        return ValidationFailed(told, details=details)


@dataclass(frozen=True)
class Row:
    """One row of the file: the line it begins on and its values, or what is wrong with it."""

    line: int
    values: Mapping[str, Any]
    problems: tuple[tuple[str | None, str, str], ...] = ()


class _NotStored(Exception):
    """Takes back an import that must leave nothing."""


def import_rows(
    scope: TenantScope, name: str, file: BinaryIO, options: ImportOptions, progress: Callable[[ImportReport], None] | None = None
) -> ImportReport:
    """Read `file` and store its rows, 500 to a transaction; with `refuse` or a dry run all in one.

    `progress` is told of each transaction; what it raises ends the import, and what was stored stays.
    """
    collection = load(scope, name)
    for part in options.key:
        if part not in collection.fields:
            raise ValidationFailed(
                Sentence("key: %(part)s is not a field of %(name)s", part=repr(part[:60]), name=name), pointer="/key"
            )
    if (options.at_once or options.in_write) and _has_more_lines(file, MAX_ROWS_AT_ONCE):
        raise PayloadTooLarge(Sentence(
            "an import in one transaction may have %(max_rows_at_once)s lines, so that others need not wait: "
            "send it in parts, or with on_error=report, without dry_run and without an Idempotency-Key",
            max_rows_at_once=MAX_ROWS_AT_ONCE,
        ))
    report = ImportReport()
    reader = _read_csv if options.format == "csv" else _read_ndjson
    rows = reader(collection, file, options, report)
    if options.at_once:
        _import_at_once(scope, name, list(rows), (options, report))
    else:
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            _store_part(scope, name, chunk, (options, report))
            if progress is not None:
                progress(report)
    report.errors.sort(key=lambda error: int(error["line"]))
    return report


def _store_part(scope: TenantScope, name: str, rows: list[Row], choice: tuple[ImportOptions, ImportReport]) -> None:
    options, report = choice
    quota.refuse_full(scope)

    def write() -> None:
        outcomes = _store(load(scope, name), rows, choice)
        if options.dry_run:
            raise _NotStored
        batch.announce(scope, outcomes)

    try:
        db.write(write)
    except _NotStored:
        report.stored = False


def _has_more_lines(file: BinaryIO, most: int) -> bool:
    """Whether the file has more than `most` line ends; it is at its start again afterwards."""
    count = 0
    while count <= most and (piece := file.read(MAX_LINE)):
        count += piece.count(b"\n")
    file.seek(0)
    return count > most


def _import_at_once(scope: TenantScope, name: str, rows: list[Row], choice: tuple[ImportOptions, ImportReport]) -> None:
    options, report = choice
    quota.refuse_full(scope)

    def write() -> None:
        with db.savepoint():
            collection = load(scope, name)
            chunks = [rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE)]
            outcomes = [outcome for chunk in chunks for outcome in _store(collection, chunk, choice)]
            if options.dry_run or report.failed:
                raise _NotStored
        batch.announce(scope, outcomes)

    try:
        db.write(write)
    except _NotStored:
        report.stored = False


def _store(collection: CompiledCollection, rows: list[Row], choice: tuple[ImportOptions, ImportReport]) -> list[Outcome]:
    """Store the rows that can be, note the rest in the report."""
    options, report = choice
    good: list[tuple[int, Operation]] = []
    for row in rows:
        report.rows += 1
        found = Findings()
        operation = _operation(collection, row, options, found)
        problems = [*row.problems, *((_last(d.pointer), d.code, d.message) for d in found.details)]
        for problem in problems:
            report.add_error(row.line, *problem)
        report.failed += bool(problems)
        if not problems:
            good.append((row.line, operation))
    stored: list[Outcome] = []
    for (line, _), outcome in zip(good, batch.run_each([operation for _, operation in good]), strict=True):
        if isinstance(outcome, Outcome):
            setattr(report, outcome.event, getattr(report, outcome.event) + 1)
            stored.append(outcome)
            continue
        report.failed += 1
        for detail in outcome.details or [Detail("", outcome.code, outcome.message)]:
            report.add_error(line, _last(detail.pointer), detail.code, detail.message)
    return stored


def _operation(collection: CompiledCollection, row: Row, options: ImportOptions, found: Findings) -> Operation:
    """The row as an operation; a cell that could not even be read is not complained of twice."""
    operation = Operation("upsert" if options.key else "create", collection, "", row.values)
    unread = {problem[0] for problem in row.problems}
    if None in unread:
        return operation
    if options.key:
        operation.stored = collection.read_changes(row.values, found, "")
        operation.key = batch.read_key(list(options.key), operation, found)
    else:
        operation.stored = collection.read_new(row.values, found, "")
    found.details = [detail for detail in found.details if _last(detail.pointer) not in unread]
    return operation


def _last(pointer: str) -> str | None:
    return pointer.rpartition("/")[2] or None


def _read_csv(collection: CompiledCollection, file: BinaryIO, options: ImportOptions, report: ImportReport) -> Iterator[Row]:
    """Bytes that are not UTF-8 travel as surrogates to the cell they are in, and are reported there."""
    encoding = "utf-8-sig" if options.encoding == "utf-8" else options.encoding
    text = io.TextIOWrapper(file, encoding, "surrogateescape", newline="")
    try:
        yield from _csv_rows(collection, text, options, report)
    finally:
        text.detach()  # the file is its opener's to close


def _csv_rows(collection: CompiledCollection, text: TextIO, options: ImportOptions, report: ImportReport) -> Iterator[Row]:
    first = text.readline(MAX_LINE)
    text.seek(0)
    delimiter = options.delimiter or max(",;\t", key=first.count)
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Row(line, {}, ((None, "invalid_csv", str(error)),))
            continue
        except UnicodeError as error:
            yield Row(line, {}, ((None, "invalid_encoding", f"is not {options.encoding} from here on: {str(error)[:120]}"),))
            return
        if header is None:
            header = _check_header(collection, _renamed(cells, options, report), report)
        elif cells:
            yield _csv_row(collection, header, cells, (line, options))


def _renamed(cells: list[str], options: ImportOptions, report: ImportReport) -> list[str]:
    """The fields that columns lead to, an empty name for a column that is left out."""
    if options.fields is None:
        return cells
    named = list(islice(chain(options.fields, repeat("")), len(cells)))
    report.ignored_columns = [cell for cell, name in zip(cells, named, strict=True) if not name]
    return named


def _check_header(collection: CompiledCollection, cells: list[str], report: ImportReport) -> list[str]:
    header = [cell.strip() for cell in cells]
    found = Findings()
    seen: set[str] = set()
    for position, name in enumerate(header):
        if name == "" and report.ignored_columns:
            continue
        if name in seen:
            found.add(f"/header/{position}", "not_unique", f"the column {name[:60]!r} appears twice")
        elif name not in collection.fields and name not in RESERVED_FIELDS:
            found.add(f"/header/{position}", "unknown_field", f"{name[:60]!r} is not a field of {collection.name}")
        seen.add(name)
    found.raise_if_any("the first line must name fields of the collection, nothing was stored")
    report.ignored_columns += [name for name in header if name in RESERVED_FIELDS]
    return header


def _csv_row(collection: CompiledCollection, header: list[str], cells: list[str], place: tuple[int, ImportOptions]) -> Row:
    line, options = place
    if len(cells) != len(header):
        return Row(line, {}, ((None, "wrong_columns", f"has {len(cells)} cells, the first line has {len(header)}"),))
    values: dict[str, Any] = {}
    problems: list[tuple[str | None, str, str]] = []
    for name, cell in zip(header, cells, strict=True):
        if name == "" or name in RESERVED_FIELDS:
            continue
        try:
            known = collection.fields[name]
            if cell == "" or cell == options.empty:
                if known.definition.default is None:
                    values[name] = None
            else:
                values[name] = _cell_value(known.definition.type, cell, options)
        except Refused as refusal:
            problems.append((name, refusal.code, str(refusal)))
    return Row(line, values, tuple(problems))


def _cell_value(kind: str, cell: str, options: ImportOptions) -> Any:
    if not cell.isascii():
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            told = f"holds bytes that are not {options.encoding.upper()}; save the file as UTF-8, or name its charset"
            raise Refused("invalid_encoding", told) from error
    if FIELD_TYPES[kind].kind == "text":
        return cell[1:] if cell[0] == "'" and cell[1:].startswith(FORMULA) else cell
    if options.decimal == "," and kind in ("integer", "number", "decimal"):
        return FIELD_TYPES[kind].from_text(_with_point(cell.strip()))
    return FIELD_TYPES[kind].from_text(cell.strip())


def _with_point(cell: str) -> str:
    """`1.234,50` as `1234.50`."""
    if not _WITH_COMMA.fullmatch(cell):
        raise Refused("invalid_format", "must be a number with a decimal comma, such as 1.234,50 or 1234,5")
    return cell.replace(".", "").replace(",", ".")


def _read_ndjson(collection: CompiledCollection, file: BinaryIO, options: ImportOptions, report: ImportReport) -> Iterator[Row]:
    ignored: set[str] = set()
    for number, raw in enumerate(_lines(file), 1):
        if raw.strip():
            row = _ndjson_row(raw, number)
            if options.columns is not None:
                ignored |= row.values.keys() - options.columns.keys()
                row = Row(number, {options.columns[k]: v for k, v in row.values.items() if k in options.columns}, row.problems)
            ignored |= row.values.keys() & set(RESERVED_FIELDS)
            report.ignored_columns = sorted(ignored)
            yield Row(number, {k: v for k, v in row.values.items() if k not in RESERVED_FIELDS}, row.problems)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines; of one that is too long only so much that it is seen to be."""
    mark = b"\xef\xbb\xbf"
    while line := file.readline(MAX_LINE + 1):
        rest = line
        while len(rest) > MAX_LINE and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE + 1)
        yield line.removeprefix(mark)
        mark = b""


def _ndjson_row(raw: bytes, line: int) -> Row:
    if len(raw) > MAX_LINE:
        return Row(line, {}, ((None, "payload_too_large", "is longer than 1 MiB"),))
    try:
        values = json.loads(raw.decode(), object_pairs_hook=_unique_members, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        return Row(line, {}, ((None, "invalid_encoding", "holds bytes that are not UTF-8"),))
    except (ValueError, RecursionError) as error:
        return Row(line, {}, ((None, "invalid_json", str(error)[:200]),))
    if not isinstance(values, dict):
        return Row(line, {}, ((None, "wrong_type", "must be a JSON object"),))
    return Row(line, values)


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member appears twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
