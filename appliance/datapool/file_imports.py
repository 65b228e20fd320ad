"""Files on their way into a collection: looked at, tried out and imported in threads of their own, while a page looks on."""

import csv
import io
import json
import logging
import os
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import IO, Any, Literal

from appliance.core import clock, ids
from appliance.core.errors import ApplianceError, Conflict, NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import service
from appliance.datapool.imports import ImportOptions, ImportReport
from appliance.formats import Bounds, FormatFailed, Formats, Work, find_delimiter, find_encoding, scalar_text

log = logging.getLogger(__name__)

SAMPLE_BYTES, SAMPLE_ROWS, GUESS_ROWS = 64 << 10, 8, 200
MOST_COLUMNS = 1_000
KEPT_MS = 3_600_000
MOST_OF_TENANT = 5
THREADS = 2
XLSX = Bounds(120.0, 512, 1 << 30)
WORKBOOKS = (".xlsx", ".xlsm")
State = Literal["chosen", "trying", "tried", "importing", "done", "stopped"]


@dataclass
class FileImport:
    """A file and what became of it; `sample` has its first rows, `rows` counts those that were read so far."""

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
    def has_texts(self) -> bool:
        """Whether its cells are texts as somebody wrote them; those of a workbook are numbers and days."""
        return self.form == "csv" and not self.name.lower().endswith(WORKBOOKS)

    @property
    def is_busy(self) -> bool:
        return self.state in ("trying", "importing")


class _Stopping(Exception):
    """The appliance stops: the import ends after this part."""


class FileImports:
    """The files of every tenant that somebody is importing; kept for an hour after the last look, in this process alone."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self._lock = threading.Lock()
        self._known: dict[str, FileImport] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="import")
        self._stopping = threading.Event()

    def begin(self, scope: TenantScope, collection: str, name: str, file: IO[bytes]) -> FileImport:
        """Look at a file: its form, encoding, delimiter, columns and first rows; it is closed when it is no longer known.

        ValidationFailed, and it is closed, when there is nothing to import in it.
        """
        self._make_room(scope)
        try:
            return self._begin(scope, collection, name, file)
        except BaseException:
            file.close()
            raise

    def _begin(self, scope: TenantScope, collection: str, name: str, file: IO[bytes]) -> FileImport:
        if name.lower().endswith(WORKBOOKS):
            file = self._read_workbook(file)
        kind: Literal["csv", "ndjson"] = "ndjson" if name.lower().endswith((".ndjson", ".jsonl", ".json")) else "csv"
        found = FileImport(ids.new("imp"), scope.tenant_id, scope.actor, collection, name[:200], file, kind)
        (_look_at_lines if kind == "ndjson" else _look_at_cells)(found)
        if not found.columns or not found.sample:
            found.file.close()
            told = "the file has no row beneath its first line; choose one that names its columns there"
            raise ValidationFailed(told, pointer="/file")
        found.touched_ms = clock.now_ms()
        with self._lock:
            self._known[found.id] = found
        return found

    def look_again(self, scope: TenantScope, import_id: str, delimiter: str, encoding: str) -> None:
        """Read the first rows anew, as somebody says who sees that they were misread."""
        found = self.get(scope, import_id)
        if found.form != "csv" or found.is_busy or found.state == "done":
            raise Conflict("this file is not read as cells now; choose it again")
        try:
            _look_at_cells(found, delimiter, encoding)
        except FormatFailed as error:
            raise ValidationFailed(error.message, pointer="/encoding") from error
        found.state = "chosen"

    def get(self, scope: TenantScope, import_id: str) -> FileImport:
        """The import of this person; NotFound after an hour, or when the appliance has started anew."""
        with self._lock:
            found = self._known.get(import_id)
        if found is None or (found.tenant_id, found.actor) != (scope.tenant_id, scope.actor):
            raise NotFound("this import is not known any more; choose the file again. What it had stored is there")
        found.touched_ms = clock.now_ms()
        return found

    def try_out(self, scope: TenantScope, import_id: str, options: ImportOptions) -> None:
        """Read every row as the import would and store none of it."""
        self._start(scope, import_id, replace(options, dry_run=True, in_parts=True), "trying")

    def run(self, scope: TenantScope, import_id: str) -> None:
        """Import as it was tried out: good rows are stored, the others are told in the report."""
        options = self.get(scope, import_id).options
        self._start(scope, import_id, replace(options, dry_run=False), "importing")

    def stop(self) -> None:
        """End what is under way after the part at hand."""
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for each in self._known.values():
            each.file.close()

    def _start(self, scope: TenantScope, import_id: str, options: ImportOptions, state: State) -> None:
        found = self.get(scope, import_id)
        with self._lock:
            if found.is_busy:
                raise Conflict("this file is being read already; wait for it")
            if state == "importing" and found.state != "tried":
                raise Conflict("this file was imported, or not tried out yet; choose it again to import it once more")
            found.state, found.options, found.report, found.rows, found.problem = state, options, None, 0, ""
        self._threads.submit(self._work, scope, found)

    def _work(self, scope: TenantScope, found: FileImport) -> None:
        def progress(report: ImportReport) -> None:
            found.rows, found.report, found.touched_ms = report.rows, report, clock.now_ms()
            if self._stopping.is_set():
                raise _Stopping

        try:
            found.file.seek(0)
            options = replace(found.options, format=found.form)
            found.report = service.import_entities(scope, found.collection, found.file, options, progress)  # type: ignore[arg-type]
            found.rows = found.report.rows
            found.state = "tried" if options.dry_run else "done"
        except ApplianceError as error:
            found.problem, found.state = error.message, "stopped"
        except _Stopping:
            found.problem, found.state = "the appliance was stopped; what is counted here was stored", "stopped"
        except Exception:
            log.exception("an import of a file failed")
            found.problem, found.state = "something went wrong in the appliance; its log has the reason", "stopped"

    def _make_room(self, scope: TenantScope) -> None:
        """Forget what nobody has looked at for an hour, and the oldest of a tenant with many."""
        with self._lock:
            idle = [each for each in self._known.values() if not each.is_busy]
            old = [each for each in idle if each.touched_ms < clock.now_ms() - KEPT_MS]
            mine = sorted((each for each in idle if each.tenant_id == scope.tenant_id), key=lambda each: each.touched_ms)
            for each in {id(each): each for each in (*old, *mine[: max(0, len(mine) - MOST_OF_TENANT + 1)])}.values():
                del self._known[each.id]
                with suppress(OSError):
                    each.file.close()

    def _read_workbook(self, file: IO[bytes]) -> IO[bytes]:
        """The first sheet as CSV in a nameless file."""
        text = self._formats.scratch()
        try:
            with self._formats.perform(Work("parse.xlsx", {"header": False}, [file]), XLSX) as answer:
                lines = io.TextIOWrapper(text, "utf-8", newline="")
                writer, width = csv.writer(lines), 0
                for row in answer.records():
                    width = width or len(row)  # as many as the first line has; cells that hold nothing may be left out at the end
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


def _look_at_cells(found: FileImport, delimiter: str = "", encoding: str = "") -> None:
    found.file.seek(0)
    encoding = find_encoding(found.file, encoding or None).removesuffix("-sig")  # type: ignore[arg-type]
    found.file.seek(0)
    text = found.file.read(SAMPLE_BYTES).decode("utf-8-sig" if encoding == "utf-8" else encoding, "replace")
    delimiter = delimiter or find_delimiter(text, '"')
    columns: list[str] = []
    sample: list[list[str]] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    with suppress(csv.Error):  # a sample may be cut off inside a cell; the import tells what is wrong and where
        columns = [cell.strip() for cell in next(reader, [])]
        _refuse_many(columns)
        some = islice(filter(None, reader), GUESS_ROWS)
        sample.extend([*cells, *[""] * len(columns)][: len(columns)] for cells in some)
    found.encoding, found.delimiter, found.columns, found.sample = encoding, delimiter, columns, sample


def _refuse_many(columns: Collection[str]) -> None:
    if len(columns) > MOST_COLUMNS:
        told = Sentence(
            "the file has more than %(most_columns)s columns; choose one with fewer, or one that names its columns in line 1",
            most_columns=f"{MOST_COLUMNS:,}",
        )
        raise ValidationFailed(told, pointer="/file")


def _look_at_lines(found: FileImport) -> None:
    names: dict[str, None] = {}
    objects: list[Mapping[str, Any]] = []
    for line in found.file.read(SAMPLE_BYTES).splitlines()[:GUESS_ROWS]:
        with suppress(ValueError, RecursionError):  # told with its line when the file is tried out
            value = json.loads(line)
            if isinstance(value, dict):
                objects.append(value)
                names |= dict.fromkeys(value)
                _refuse_many(names)
    found.columns = list(names)
    found.sample = [["" if each.get(name) is None else scalar_text(each[name]) for name in names] for each in objects]
