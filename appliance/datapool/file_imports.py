"""Imports of uploaded files from the console: inspected, checked in a dry run and imported on background threads.

The page polls the state of the `FileImport`.
"""

import csv
import io
import json
import logging
import os
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import IO, Any, Literal

from appliance.core import clock, ids
from appliance.core.errors import ApplianceError, Conflict, NotFound, ValidationFailed
from appliance.core.pools import IMPORT, open_pool
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import service
from appliance.datapool.imports import ImportOptions, ImportReport
from appliance.formats import Bounds, FormatFailed, Formats, Work, detect_delimiter, detect_encoding, scalar_text

log = logging.getLogger(__name__)

SAMPLE_BYTES, SAMPLE_ROWS, GUESS_ROWS = 64 << 10, 8, 200
MAX_COLUMNS = 1_000
RETENTION_MS = 3_600_000
MAX_PER_TENANT = 5
XLSX_BOUNDS = Bounds(120.0, 512, 1 << 30)
WORKBOOKS = (".xlsx", ".xlsm")
State = Literal["chosen", "trying", "tried", "importing", "done", "stopped"]


@dataclass
class FileImport:
    """An uploaded file and the state of its import; `sample` has its first rows, `rows` counts those read so far."""

    id: str
    tenant_id: str
    actor: str
    collection: str
    name: str
    file: IO[bytes]
    form: Literal["csv", "ndjson"] = "csv"
    delimiter: str = ","
    encoding: str = "utf-8"
    columns: list[str] = field(default_factory=list)
    sample: list[list[str]] = field(default_factory=list)
    state: State = "chosen"
    options: ImportOptions = field(default_factory=ImportOptions)
    report: ImportReport | None = None
    rows: int = 0
    problem: str = ""
    touched_ms: int = 0

    @property
    def has_text_cells(self) -> bool:
        """Whether the cells are text as typed (CSV); the cells of a workbook are already numbers and dates."""
        return self.form == "csv" and not self.name.lower().endswith(WORKBOOKS)

    @property
    def is_busy(self) -> bool:
        return self.state in ("trying", "importing")


class _Stopping(Exception):
    """The appliance is shutting down; the import ends after the current chunk."""


class FileImports:
    """The imports of all tenants, in the memory of this process; dropped an hour after the last access."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self._lock = threading.Lock()
        self._imports: dict[str, FileImport] = {}
        self._threads = open_pool(IMPORT)
        self._stopping = threading.Event()

    def begin(self, scope: TenantScope, collection: str, name: str, file: IO[bytes]) -> FileImport:
        """Detect the format, encoding, delimiter, columns and first rows of a file.  Takes over closing the file.

        ValidationFailed when the file has no rows.
        """
        self._drop_expired(scope)
        try:
            return self._inspect(scope, collection, name, file)
        except BaseException:
            file.close()
            raise

    def _inspect(self, scope: TenantScope, collection: str, name: str, file: IO[bytes]) -> FileImport:
        if name.lower().endswith(WORKBOOKS):
            file = self._read_workbook(file)
        kind: Literal["csv", "ndjson"] = "ndjson" if name.lower().endswith((".ndjson", ".jsonl", ".json")) else "csv"
        file_import = FileImport(
            id=ids.new("imp"), tenant_id=scope.tenant_id, actor=scope.actor, collection=collection, name=name[:200], file=file,
            form=kind,
        )
        (_inspect_ndjson if kind == "ndjson" else _inspect_csv)(file_import)
        if not file_import.columns or not file_import.sample:
            file_import.file.close()
            message = (
                "the file has no rows below its first line; choose a file with column names in the first line and rows below it"
            )
            raise ValidationFailed(message, pointer="/file")
        file_import.touched_ms = clock.now_ms()
        with self._lock:
            self._imports[file_import.id] = file_import
        return file_import

    def inspect_again(self, scope: TenantScope, import_id: str, delimiter: str, encoding: str) -> None:
        """Read the first rows again with the delimiter and encoding that the user chose."""
        file_import = self.get(scope, import_id)
        if file_import.form != "csv" or file_import.is_busy or file_import.state == "done":
            raise Conflict("the delimiter and encoding of this file cannot be changed now; choose the file again")
        try:
            _inspect_csv(file_import, delimiter, encoding)
        except FormatFailed as error:
            raise ValidationFailed(error.message, pointer="/encoding") from error
        file_import.state = "chosen"

    def get(self, scope: TenantScope, import_id: str) -> FileImport:
        """The import, if it belongs to this user; NotFound an hour after the last access or when the appliance restarted."""
        with self._lock:
            file_import = self._imports.get(import_id)
        if file_import is None or (file_import.tenant_id, file_import.actor) != (scope.tenant_id, scope.actor):
            raise NotFound("this import has expired; choose the file again. Rows that were already imported are kept")
        file_import.touched_ms = clock.now_ms()
        return file_import

    def start_dry_run(self, scope: TenantScope, import_id: str, options: ImportOptions) -> None:
        """Start a dry run: validate every row and store none."""
        self._start(scope, import_id, replace(options, dry_run=True, in_parts=True), "trying")

    def start_import(self, scope: TenantScope, import_id: str) -> None:
        """Start the import with the options of the dry run: valid rows are stored, the report lists the others."""
        options = self.get(scope, import_id).options
        self._start(scope, import_id, replace(options, dry_run=False), "importing")

    def stop(self) -> None:
        """End running imports after their current chunk, and close every file."""
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for file_import in self._imports.values():
            file_import.file.close()

    def _start(self, scope: TenantScope, import_id: str, options: ImportOptions, state: State) -> None:
        file_import = self.get(scope, import_id)
        with self._lock:
            if file_import.is_busy:
                raise Conflict("this file is already being read; wait until that has finished")
            if state == "importing" and file_import.state != "tried":
                raise Conflict("this file was already imported, or not checked yet; to import it again, choose the file again")
            file_import.state, file_import.options = state, options
            file_import.report, file_import.rows, file_import.problem = None, 0, ""
        self._threads.submit(self._run, scope, file_import)

    def _run(self, scope: TenantScope, file_import: FileImport) -> None:
        def progress(report: ImportReport) -> None:
            file_import.rows, file_import.report, file_import.touched_ms = report.rows, report, clock.now_ms()
            if self._stopping.is_set():
                raise _Stopping

        try:
            file_import.file.seek(0)
            options = replace(file_import.options, format=file_import.form)
            file_import.report = service.import_entities(scope, file_import.collection, file_import.file, options, progress)  # type: ignore[arg-type]
            file_import.rows = file_import.report.rows
            file_import.state = "tried" if options.dry_run else "done"
        except ApplianceError as error:
            file_import.problem, file_import.state = error.message, "stopped"
        except _Stopping:
            file_import.problem, file_import.state = "the appliance was stopped; the rows counted here were stored", "stopped"
        except Exception:
            log.exception("the import of a file failed")
            file_import.problem, file_import.state = "an internal error occurred; see the log of the appliance", "stopped"

    def _drop_expired(self, scope: TenantScope) -> None:
        """Drop imports without access for an hour, and the oldest ones of a tenant with too many."""
        with self._lock:
            idle = [entry for entry in self._imports.values() if not entry.is_busy]
            old = [entry for entry in idle if entry.touched_ms < clock.now_ms() - RETENTION_MS]
            mine = sorted((entry for entry in idle if entry.tenant_id == scope.tenant_id), key=lambda each: each.touched_ms)
            for file_import in {id(entry): entry for entry in (*old, *mine[: max(0, len(mine) - MAX_PER_TENANT + 1)])}.values():
                del self._imports[file_import.id]
                with suppress(OSError):
                    file_import.file.close()

    def _read_workbook(self, file: IO[bytes]) -> IO[bytes]:
        """The first sheet as CSV in an anonymous temporary file."""
        text = self._formats.scratch()
        try:
            with self._formats.perform(Work("parse.xlsx", {"header": False}, [file]), XLSX_BOUNDS) as answer:
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
        finally:
            file.close()
        text.seek(0, os.SEEK_SET)
        return text


def _inspect_csv(file_import: FileImport, delimiter: str = "", encoding: str = "") -> None:
    file_import.file.seek(0)
    encoding = detect_encoding(file_import.file, encoding or None).removesuffix("-sig")  # type: ignore[arg-type]
    file_import.file.seek(0)
    text = file_import.file.read(SAMPLE_BYTES).decode("utf-8-sig" if encoding == "utf-8" else encoding, "replace")
    delimiter = delimiter or detect_delimiter(text, '"')
    columns: list[str] = []
    sample: list[list[str]] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    with suppress(csv.Error):  # The sample may end inside a cell; the import reports real errors with their line.
        columns = [cell.strip() for cell in next(reader, [])]
        _check_column_count(columns)
        sample_rows = islice(filter(None, reader), GUESS_ROWS)
        sample.extend([*cells, *[""] * len(columns)][: len(columns)] for cells in sample_rows)
    file_import.encoding, file_import.delimiter, file_import.columns, file_import.sample = encoding, delimiter, columns, sample


def _check_column_count(columns: Collection[str]) -> None:
    if len(columns) > MAX_COLUMNS:
        message = Sentence(
            "the file has more than %(most_columns)s columns; choose a file with fewer columns and their names in the first line",
            most_columns=f"{MAX_COLUMNS:,}",
        )
        raise ValidationFailed(message, pointer="/file")


def _inspect_ndjson(file_import: FileImport) -> None:
    names: dict[str, None] = {}
    objects: list[Mapping[str, Any]] = []
    for line in file_import.file.read(SAMPLE_BYTES).splitlines()[:GUESS_ROWS]:
        with suppress(ValueError, RecursionError):  # The dry run reports it with its line.
            value = json.loads(line)
            if isinstance(value, dict):
                objects.append(value)
                names |= dict.fromkeys(value)
                _check_column_count(names)
    file_import.columns = list(names)
    file_import.sample = [["" if each.get(name) is None else scalar_text(each[name]) for name in names] for each in objects]
