"""Imports CSV and NDJSON: every row is either stored or reported with its line and field."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import BinaryIO

from appliance.core.database import db
from appliance.core.errors import Detail, PayloadTooLarge, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.datapool import batch
from appliance.datapool.batch import Operation
from appliance.datapool.compiled import CompiledCollection, load
from appliance.datapool.definition import Findings
from appliance.datapool.entities import ChangeResult
from appliance.datapool.importing.reading import MAX_LINE, ImportOptions, ImportReport, Row, read_csv, read_ndjson

CHUNK_ROWS = 500
MAX_ROWS_AT_ONCE = 20_000


@dataclass(frozen=True)
class ImportProgress:
    """Continues an import chunk by chunk behind the rows that `report` counts.

    `save` gets the reports before and after a chunk, and stores the latter in the transaction of the chunk (behind it in a dry
    run, which stores no rows): an exception that it raises ends the import without the chunk.  `check` is called before each
    chunk, and may end the import by an exception.
    """

    report: ImportReport
    save: Callable[[ImportReport, ImportReport], None]
    check: Callable[[], None]


class _Rollback(Exception):
    """Rolls back an import that must not store anything; with its report."""

    def __init__(self, part: ImportReport) -> None:
        super().__init__()
        self.part = part


def import_rows(
    scope: TenantScope, name: str, file: BinaryIO, options: ImportOptions, progress: ImportProgress | None = None
) -> ImportReport:
    """Read `file` and store its rows, 500 per transaction; with `refuse` or for a dry run all in one, without `progress`."""
    collection = load(scope, name)
    for field_name in options.key:
        if field_name not in collection.fields:
            raise ValidationFailed(
                Sentence("key: %(part)s is not a field of %(name)s", part=repr(field_name[:60]), name=name), pointer="/key"
            )
    if (options.is_single_transaction or options.in_write) and _has_more_lines(file, MAX_ROWS_AT_ONCE):
        raise PayloadTooLarge(Sentence(
            "an import in one transaction can have at most %(max_rows_at_once)s lines; split the file, or send it with "
            "on_error=report and without dry_run and Idempotency-Key",
            max_rows_at_once=MAX_ROWS_AT_ONCE,
        ))
    before = progress.report if progress else ImportReport()
    report = replace(before, errors=[*before.errors], ignored_columns=[])  # The reader collects the columns.
    reader = read_csv if options.format == "csv" else read_ndjson
    with closing(reader(collection, file, options, report)) as rows:
        if options.is_single_transaction:
            _import_in_one_transaction(scope, name, list(rows), options, report)
        else:
            _import_in_chunks(_Import(scope, name, options), rows, progress, report)
    report.errors.sort(key=lambda error: int(error["line"]))
    return report


@dataclass(frozen=True)
class _Import:
    """What is imported: the parts that all chunks have in common."""

    scope: TenantScope
    collection: str
    options: ImportOptions


def _import_in_chunks(
    target: _Import, rows: Iterator[Row], progress: ImportProgress | None, report: ImportReport
) -> None:
    """Import the rows that `report` does not count yet."""
    later = islice(rows, report.rows, None)
    while chunk := list(islice(later, CHUNK_ROWS)):
        if progress is not None:
            progress.check()
        batch.check_room(target.scope)
        report.merge(_write_chunk(partial(_store_chunk, target, chunk), progress, report))
        report.stored = not target.options.dry_run


def _store_chunk(target: _Import, rows: list[Row]) -> ImportReport:
    """Inside a write: store the valid rows and report on all; `_Rollback` with the report for a dry run."""
    results, part = _store_rows(load(target.scope, target.collection), rows, target.options)
    if target.options.dry_run:
        raise _Rollback(part)
    batch.announce(target.scope, results)
    return part


def _write_chunk(store: Callable[[], ImportReport], progress: ImportProgress | None, report: ImportReport) -> ImportReport:
    """Store a chunk, and in the same transaction the report that includes it; the report of the chunk."""

    def save(part: ImportReport) -> ImportReport:
        if progress is not None:
            progress.save(report, report.merged(part))
        return part

    try:
        return db.write(lambda: save(store()))
    except _Rollback as rolled_back:
        return db.write(partial(save, rolled_back.part)) if progress else rolled_back.part


def _merge_written(write: Callable[[], ImportReport], report: ImportReport) -> None:
    try:
        report.merge(db.write(write))
    except _Rollback as rolled_back:
        report.merge(rolled_back.part)
        report.stored = False


def _has_more_lines(file: BinaryIO, limit: int) -> bool:
    """Whether the file has more than `most` line ends; rewinds the file."""
    count = 0
    while count <= limit and (chunk := file.read(MAX_LINE)):
        count += chunk.count(b"\n")
    file.seek(0)
    return count > limit


def _import_in_one_transaction(
    scope: TenantScope, name: str, rows: list[Row], options: ImportOptions, report: ImportReport
) -> None:
    batch.check_room(scope)

    def write() -> ImportReport:
        whole = ImportReport()
        results: list[ChangeResult] = []
        with db.savepoint():
            collection = load(scope, name)
            for start in range(0, len(rows), CHUNK_ROWS):
                stored, part = _store_rows(collection, rows[start : start + CHUNK_ROWS], options)
                results += stored
                whole.merge(part)
            if options.dry_run or whole.failed:
                raise _Rollback(whole)
        batch.announce(scope, results)
        return whole

    _merge_written(write, report)


def _store_rows(
    collection: CompiledCollection, rows: list[Row], options: ImportOptions
) -> tuple[list[ChangeResult], ImportReport]:
    """Store the valid rows, and report on these and the others."""
    report = ImportReport()
    valid: list[tuple[int, Operation]] = []
    for row in rows:
        report.rows += 1
        findings = Findings()
        operation = _build_operation(collection, row, options, findings)
        problems = [*row.problems, *((_last_token(d.pointer), d.code, d.message) for d in findings.details)]
        for problem in problems:
            report.add_error(row.line, *problem)
        report.failed += bool(problems)
        if not problems:
            valid.append((row.line, operation))
    stored: list[ChangeResult] = []
    for (line, _), result in zip(valid, batch.run_each([operation for _, operation in valid]), strict=True):
        if isinstance(result, ChangeResult):
            setattr(report, result.event, getattr(report, result.event) + 1)
            stored.append(result)
            continue
        report.failed += 1
        for detail in result.details or [Detail("", result.code, result.message)]:
            report.add_error(line, _last_token(detail.pointer), detail.code, detail.message)
    return stored, report


def _build_operation(collection: CompiledCollection, row: Row, options: ImportOptions, findings: Findings) -> Operation:
    """The row as an operation; a cell that could not be parsed is not reported a second time."""
    operation = Operation("upsert" if options.key else "create", collection, "", row.values)
    invalid_fields = {problem[0] for problem in row.problems}
    if None in invalid_fields:
        return operation
    if options.key:
        operation.stored = collection.parse_changes(row.values, findings, "")
        operation.key = batch.parse_key(list(options.key), operation, findings)
    else:
        operation.stored = collection.parse_new(row.values, findings, "")
    findings.details = [detail for detail in findings.details if _last_token(detail.pointer) not in invalid_fields]
    return operation


def _last_token(pointer: str) -> str | None:
    return pointer.rpartition("/")[2] or None
