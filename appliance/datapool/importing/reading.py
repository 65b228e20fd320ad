"""Reads the rows of CSV and NDJSON files for an import, with the errors of each."""

import csv
import io
import json
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from typing import Any, BinaryIO, Literal, NoReturn, TextIO, TypeAlias

from appliance.core.errors import Detail, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.datapool.compiled import CompiledCollection
from appliance.datapool.definition import RESERVED_FIELDS, Findings
from appliance.datapool.field_types import FIELD_TYPES, InvalidValue

MAX_ERRORS, MAX_DETAILS = 1_000, 100
MAX_LINE = 1 << 20
FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "'")

_DECIMAL_COMMA = re.compile(r"[-+]?(\d{1,3}([.]\d{3})+|\d+)(,\d+)?", re.ASCII)

csv.field_size_limit(MAX_LINE)

Rows: TypeAlias = "Generator[Row, None, None]"
"""The rows of a file, in its order; closed by who reads them, before the file."""


@dataclass(frozen=True)
class ImportOptions:
    """How to import a file.

    `key` turns rows into upserts.  `on_error` is `report` (store the valid rows) or `refuse` (store none unless all are
    valid).  `in_write` says that the import runs inside the caller's transaction.  `columns` maps NDJSON members to
    fields; `fields` has the field of each CSV column by position, empty to skip it; without them, names are the fields'.
    `in_parts` makes a dry run check a file of any length chunk by chunk; a conflict between rows of different chunks then
    shows only in the import.  `empty` is a cell text that means no value.  `decimal` is the decimal separator of CSV
    numbers; with a comma, the point separates thousands (`1.234,50`).
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
    def is_single_transaction(self) -> bool:
        return self.on_error == "refuse" or (self.dry_run and not self.in_parts)


@dataclass
class ImportReport:
    """The counts of an import; `errors` holds the first 1,000 errors, `error_count` counts all."""

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

    def merge(self, part: "ImportReport") -> None:
        """Add the counts and errors of a part of the file."""
        for name in ("rows", "created", "updated", "unchanged", "failed", "error_count"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.errors += part.errors[: MAX_ERRORS - len(self.errors)]

    def merged(self, part: "ImportReport") -> "ImportReport":
        """A copy with the counts and errors of a further part of the file."""
        both = replace(self, errors=[*self.errors])
        both.merge(part)
        return both

    def to_error(self) -> ValidationFailed:
        """The error of an import that stored nothing, with details for the first 100 errors (`/lines/<line>/<field>`)."""
        details = [
            Detail(f"/lines/{error['line']}" + (f"/{error['field']}" if error["field"] else ""), error["code"], error["message"])
            for error in self.errors[:MAX_DETAILS]
        ]
        message = Sentence(
            "%(failed)s of %(rows)s rows are invalid, so nothing was stored; correct them, or import with on_error=report",
            failed=self.failed, rows=self.rows,
        )
        return ValidationFailed(message, details=details)


@dataclass(frozen=True)
class Row:
    """One row of the file: the line it starts on, and its values or its errors as `(field, code, message)`."""

    line: int
    values: Mapping[str, Any]
    problems: tuple[tuple[str | None, str, str], ...] = ()


def read_csv(collection: CompiledCollection, file: BinaryIO, options: ImportOptions, report: ImportReport) -> Rows:
    """The rows of a CSV; undecodable bytes become surrogates, so that `_cell_value` can report them with their cell."""
    encoding = "utf-8-sig" if options.encoding == "utf-8" else options.encoding
    text = io.TextIOWrapper(file, encoding, "surrogateescape", newline="")
    try:
        yield from _parse_csv(collection, text, options, report)
    finally:
        text.detach()  # The caller closes the file.


def _parse_csv(collection: CompiledCollection, text: TextIO, options: ImportOptions, report: ImportReport) -> Iterator[Row]:
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
            header = _check_header(collection, _map_columns(cells, options, report), report)
        elif cells:
            yield _parse_csv_row(collection, header, cells, (line, options))


def _map_columns(cells: list[str], options: ImportOptions, report: ImportReport) -> list[str]:
    """The field name of each column, empty for one that is skipped."""
    if options.fields is None:
        return cells
    names = list(islice(chain(options.fields, repeat("")), len(cells)))
    report.ignored_columns = [cell for cell, name in zip(cells, names, strict=True) if not name]
    return names


def _check_header(collection: CompiledCollection, cells: list[str], report: ImportReport) -> list[str]:
    header = [cell.strip() for cell in cells]
    findings = Findings()
    earlier: set[str] = set()
    for position, name in enumerate(header):
        if name == "" and report.ignored_columns:
            continue
        if name in earlier:
            findings.add(f"/header/{position}", "not_unique", f"the column {name[:60]!r} appears twice")
        elif name not in collection.fields and name not in RESERVED_FIELDS:
            findings.add(f"/header/{position}", "unknown_field", f"{name[:60]!r} is not a field of {collection.name}")
        earlier.add(name)
    findings.raise_if_any("the first line must contain field names of the collection; nothing was stored")
    report.ignored_columns += [name for name in header if name in RESERVED_FIELDS]
    return header


def _parse_csv_row(collection: CompiledCollection, header: list[str], cells: list[str], context: tuple[int, ImportOptions]) -> Row:
    line, options = context
    if len(cells) != len(header):
        return Row(line, {}, ((None, "wrong_columns", f"has {len(cells)} cells, the first line has {len(header)}"),))
    values: dict[str, Any] = {}
    problems: list[tuple[str | None, str, str]] = []
    for name, cell in zip(header, cells, strict=True):
        if name == "" or name in RESERVED_FIELDS:
            continue
        try:
            compiled_field = collection.fields[name]
            if cell == "" or cell == options.empty:
                if compiled_field.definition.default is None:
                    values[name] = None
            else:
                values[name] = _parse_cell(compiled_field.definition.type, cell, options)
        except InvalidValue as refusal:
            problems.append((name, refusal.code, str(refusal)))
    return Row(line, values, tuple(problems))


def _parse_cell(kind: str, cell: str, options: ImportOptions) -> Any:
    if not cell.isascii():
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            message = f"contains bytes that are not {options.encoding.upper()}; save the file as UTF-8, or set its charset"
            raise InvalidValue("invalid_encoding", message) from error
    if FIELD_TYPES[kind].kind == "text":
        return cell[1:] if cell[0] == "'" and cell[1:].startswith(FORMULA_PREFIXES) else cell
    if options.decimal == "," and kind in ("integer", "number", "decimal"):
        return FIELD_TYPES[kind].parse_cell(_replace_decimal_comma(cell.strip()))
    return FIELD_TYPES[kind].parse_cell(cell.strip())


def _replace_decimal_comma(cell: str) -> str:
    """`1.234,50` as `1234.50`."""
    if not _DECIMAL_COMMA.fullmatch(cell):
        raise InvalidValue("invalid_format", "must be a number with a decimal comma, such as 1.234,50 or 1234,5")
    return cell.replace(".", "").replace(",", ".")


def read_ndjson(collection: CompiledCollection, file: BinaryIO, options: ImportOptions, report: ImportReport) -> Rows:
    ignored: set[str] = set()
    for number, raw in enumerate(_iterate_lines(file), 1):
        if raw.strip():
            row = _parse_ndjson_row(raw, number)
            if options.columns is not None:
                ignored |= row.values.keys() - options.columns.keys()
                row = Row(number, {options.columns[k]: v for k, v in row.values.items() if k in options.columns}, row.problems)
            ignored |= row.values.keys() & set(RESERVED_FIELDS)
            report.ignored_columns = sorted(ignored)
            yield Row(number, {k: v for k, v in row.values.items() if k not in RESERVED_FIELDS}, row.problems)


def _iterate_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of the file; one over the limit is cut to just above it."""
    mark = b"\xef\xbb\xbf"
    while line := file.readline(MAX_LINE + 1):
        rest = line
        while len(rest) > MAX_LINE and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE + 1)
        yield line.removeprefix(mark)
        mark = b""


def _parse_ndjson_row(raw: bytes, line: int) -> Row:
    if len(raw) > MAX_LINE:
        return Row(line, {}, ((None, "payload_too_large", "is longer than 1 MiB"),))
    try:
        values = json.loads(raw.decode(), object_pairs_hook=_unique_members, parse_constant=_reject_constant)
    except UnicodeDecodeError:
        return Row(line, {}, ((None, "invalid_encoding", "contains bytes that are not UTF-8"),))
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


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
