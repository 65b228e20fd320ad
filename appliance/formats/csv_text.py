"""CSV: parses rows with the given or detected dialect, and writes rows that are safe from formula injection."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from . import encodings
from .errors import ContentInvalid
from .request import Records, Request
from .rows import build_row, column_names, find_columns, read_rows, scalar_text

DELIMITERS = (",", ";", "\t", "|")
SAMPLE_TEXT, SAMPLE_ROWS = 64 << 10, 50
MAX_CELL_LENGTH = 1 << 20
# Leading characters that make spreadsheets treat a text as a formula (OWASP, "CSV Injection").
FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")
_PLAIN_NUMBER = re.compile(r"[+-]?(\d+([.,]\d+)*|[.,]\d+)([eE][+-]?\d+)?%?")


def load() -> None:
    encodings.load()
    csv.field_size_limit(MAX_CELL_LENGTH)


def parse(request: Request) -> dict[str, Any]:
    """Write a record per row: an object by column, or without a header a list of cells.  Blank lines are skipped."""
    text, encoding = encodings.open_text(request.content, request.options.get("encoding"))
    try:
        return _parse(request, text) | {"encoding": encoding}
    except UnicodeError as error:
        raise encodings.decoding_error(error, encoding) from error


def _parse(request: Request, text: io.TextIOWrapper) -> dict[str, Any]:
    quote = request.option("quote", '"')
    delimiter = request.options.get("delimiter")
    if delimiter is None:
        sample = text.read(SAMPLE_TEXT)
        text.seek(0)
        delimiter = detect_delimiter(sample, quote)
    if quote:
        reader = csv.reader(text, delimiter=delimiter, quotechar=quote, strict=True)
    else:
        reader = csv.reader(text, delimiter=delimiter, quotechar=None, quoting=csv.QUOTE_NONE, strict=True)
    records, columns = Records(request.output), None
    header = request.option("header", True)
    types = request.option("types", {})
    for line, cells in _iterate_rows(reader):
        if columns is None and header is not False:
            columns = column_names(cells if header is True else header)
            if header is True:
                continue
        if columns is not None and len(cells) != len(columns):
            raise ContentInvalid(
                f"line {line} has {len(cells)} cells, but the header has {len(columns)}; "
                "correct the file, or set its `delimiter` or `quote`"
            )
        records.add(cells if columns is None else build_row(columns, cells, types, f"line {line}"))
    return {"columns": columns or [], "count": records.count, "delimiter": delimiter}


def _iterate_rows(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """The number of the line on which each row starts, and its cells."""
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ContentInvalid(
                f"line {line} is not valid CSV ({error}); correct the file, or set its `delimiter` or `quote`"
            ) from error
        if any("\x00" in cell for cell in cells):
            raise ContentInvalid(f"line {line} contains a NUL character; if the file is UTF-16, set its `encoding`")
        if cells:
            yield line, cells


def detect_delimiter(sample: str, quote: str) -> str:
    """Detect the delimiter: the one that splits most lines into the same number of cells; a comma when none does.

    A delimiter under which all quotes are valid is preferred over one under which some are not.
    """
    lines = sample.splitlines(keepends=True)
    if len(lines) > 1 and len(sample) >= SAMPLE_TEXT:
        lines.pop()  # The sample probably ends in the middle of this line.
    best, best_score = ",", (False, 0.0, 0)
    for candidate in DELIMITERS:
        score = _score_delimiter(lines, candidate, quote)
        if score[2] > 1 and score > best_score:
            best, best_score = candidate, score
    return best


def _score_delimiter(lines: list[str], delimiter: str, quote: str) -> tuple[bool, float, int]:
    """Whether all quotes are valid, the share of rows with the most common width, and that width."""
    counts: Counter[int] = Counter()
    fits = True
    try:
        for cells in csv.reader(lines, delimiter=delimiter, quotechar=quote or None, strict=True):
            counts[len(cells)] += bool(cells)
            if counts.total() >= SAMPLE_ROWS:
                break
    except csv.Error as error:
        fits = "unexpected end of data" in str(error)  # The sample may end inside a cell.
    width, times = max(counts.items(), key=lambda item: (item[1], item[0]), default=(1, 0))
    return fits, times / max(1, counts.total()), width


def write(request: Request) -> dict[str, Any]:
    """Write rows as CSV; `formulas: escape` puts an apostrophe before a text that a spreadsheet would run as a formula."""
    columns = find_columns(request)
    encoding = request.option("encoding", "utf-8")
    escapes = request.option("formulas", "escape") == "escape"
    text = io.TextIOWrapper(request.output, encoding, newline="")
    writer = csv.writer(
        text,
        delimiter=request.option("delimiter", ","),
        quotechar=request.option("quote", '"'),
        lineterminator=request.option("line_end", "\r\n"),
    )
    try:
        if columns and request.option("header", True):
            writer.writerow([_format_cell(name, escapes) for name in columns])
        count = 0
        for row in read_rows(request, columns):
            writer.writerow([_format_cell(value, escapes) for value in row])
            count += 1
        text.flush()
    except (csv.Error, UnicodeEncodeError) as error:
        raise ContentInvalid(f"row {count + 1} cannot be written as CSV in {encoding} ({str(error)[:120]})") from error
    text.detach()
    return {"columns": columns, "count": count}


def _format_cell(value: Any, escapes: bool) -> str:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else scalar_text(value)
    if escapes and isinstance(value, str) and text.startswith(FORMULA_PREFIXES) and not _PLAIN_NUMBER.fullmatch(text):
        return f"'{text}"
    return text
