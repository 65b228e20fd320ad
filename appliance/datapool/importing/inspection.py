"""Inspects uploaded files before their import: format, encoding, delimiter, columns and first rows."""

import csv
import io
import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, Literal

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.formats import Bounds, FormatFailed, Formats, Work, detect_delimiter, detect_encoding, scalar_text

SAMPLE_BYTES, SAMPLE_ROWS, GUESS_ROWS = 64 << 10, 8, 200
MAX_COLUMNS = 1_000
XLSX_BOUNDS = Bounds(120.0, 512, 1 << 30)
WORKBOOKS = (".xlsx", ".xlsm")


@dataclass(frozen=True)
class Inspection:
    """How to read a file, its columns, and its first rows."""

    form: Literal["csv", "ndjson"]
    delimiter: str
    encoding: str
    columns: list[str]
    sample: list[list[str]]


def inspect_file(name: str, file: IO[bytes]) -> Inspection:
    """Inspect a file, a workbook as the CSV that it was converted to; ValidationFailed when it has no rows."""
    is_ndjson = name.lower().endswith((".ndjson", ".jsonl", ".json"))
    inspection = _inspect_ndjson(file) if is_ndjson else inspect_csv(file)
    if not inspection.columns or not inspection.sample:
        message = (
            "the file has no rows below its first line; choose a file with column names in the first line and rows below it"
        )
        raise ValidationFailed(message, pointer="/file")
    return inspection


def read_workbook(formats: Formats, file: IO[bytes]) -> IO[bytes]:
    """The first sheet as CSV in an anonymous temporary file."""
    text = formats.scratch()
    try:
        with formats.perform(Work("parse.xlsx", {"header": False}, [file]), XLSX_BOUNDS) as answer:
            lines = io.TextIOWrapper(text, "utf-8", newline="")
            writer, width = csv.writer(lines), 0
            for row in answer.records():
                width = width or len(row)  # Trailing empty cells may be missing; pad to the width of the first line.
                writer.writerow([scalar_text(cell) for cell in [*row, *[None] * (width - len(row))]])
            lines.detach()
    except FormatFailed as error:
        text.close()
        raise ValidationFailed(
            Sentence("the workbook cannot be read: %(message)s", message=error.message), pointer="/file"
        ) from error
    text.seek(0, os.SEEK_SET)
    return text


def inspect_csv(file: IO[bytes], delimiter: str = "", encoding: str = "") -> Inspection:
    """Inspect a CSV file with the delimiter and encoding that the user chose, otherwise with those detected."""
    file.seek(0)
    encoding = detect_encoding(file, encoding or None).removesuffix("-sig")  # type: ignore[arg-type]
    file.seek(0)
    text = file.read(SAMPLE_BYTES).decode("utf-8-sig" if encoding == "utf-8" else encoding, "replace")
    delimiter = delimiter or detect_delimiter(text, '"')
    columns: list[str] = []
    sample: list[list[str]] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    with suppress(csv.Error):  # The sample may end inside a cell; the import reports real errors with their line.
        columns = [cell.strip() for cell in next(reader, [])]
        _check_column_count(columns)
        sample_rows = islice(filter(None, reader), GUESS_ROWS)
        sample.extend([*cells, *[""] * len(columns)][: len(columns)] for cells in sample_rows)
    return Inspection("csv", delimiter, encoding, columns, sample)


def _check_column_count(columns: Collection[str]) -> None:
    if len(columns) > MAX_COLUMNS:
        message = Sentence(
            "the file has more than %(most_columns)s columns; choose a file with fewer columns and their names in the first line",
            most_columns=f"{MAX_COLUMNS:,}",
        )
        raise ValidationFailed(message, pointer="/file")


def _inspect_ndjson(file: IO[bytes]) -> Inspection:
    names: dict[str, None] = {}
    objects: list[Mapping[str, Any]] = []
    file.seek(0)
    for line in file.read(SAMPLE_BYTES).splitlines()[:GUESS_ROWS]:
        with suppress(ValueError, RecursionError):  # The dry run reports it with its line.
            value = json.loads(line)
            if isinstance(value, dict):
                objects.append(value)
                names |= dict.fromkeys(value)
                _check_column_count(names)
    columns = list(names)
    sample = [["" if each.get(name) is None else scalar_text(each[name]) for name in columns] for each in objects]
    return Inspection("ndjson", ",", "utf-8", columns, sample)
