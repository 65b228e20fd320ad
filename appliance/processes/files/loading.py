"""Loads rows of a file into a collection in batches; each row is stored once, despite interruptions and retries."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from appliance.core.database import db
from appliance.core.database.db import dump_json
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence
from appliance.datapool import service as datapool
from appliance.formats import Answer, scalar_text
from appliance.processes.engine.failures import StepFailed, from_appliance_error, make_error
from appliance.processes.engine.store import JournalEntry, append_journal, check_fence, load_journal
from appliance.processes.engine.task import Result, StepServices, Task

from .contents import make_deadline_check

ROWS_AT_ONCE = 1_000
MAX_ERRORS = 100
METHOD = "file.rows"
COUNTED = ("rows", "created", "updated", "unchanged", "failed")


@dataclass(frozen=True)
class Load:
    """The target of the rows (the step's `to`), the content they come from, and whether cells are converted to field types."""

    to: Mapping[str, Any]
    source: str
    as_text: bool


@dataclass
class Progress:
    """The counts of rows handled so far."""

    rows: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    failed: int = 0

    def add(self, counts: Mapping[str, int]) -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + counts[name])


def load_rows(tools: StepServices, task: Task, answer: Answer, load: Load) -> Result:
    """Stores every row; a retry skips rows of the same content that are stored already.

    A batch and its journal entry are committed together under the fence.  An invalid row fails the step with its number, or
    is reported in the output with `on_error: report`.
    """
    progress, errors, position = _load_progress(task, load.source)
    check = make_deadline_check(task, tools)
    records = answer.records()
    for _ in islice(records, progress.rows):
        pass
    while rows := list(islice(records, ROWS_AT_ONCE)):
        check()
        counts, row_errors = _store_batch(task, load, rows, progress.rows, position)
        progress.add(counts)
        errors += row_errors[: MAX_ERRORS - len(errors)]
        position += 1
    return Result(output={"collection": load.to["collection"], **vars(progress), "errors": errors})


def _load_progress(task: Task, source: str) -> tuple[Progress, list[dict[str, Any]], int]:
    """The progress and errors of earlier runs and attempts with this content, and the number of journal entries so far."""
    progress, lines = Progress(), 0
    errors: list[dict[str, Any]] = []
    path, iteration, attempt = task.run_key
    for number in range(1, attempt + 1):
        lines = 0
        for entry in load_journal(task.claim.scope, task.claim.execution_id, (path, iteration, number)):
            if entry.method != METHOD:
                continue
            lines += 1
            if entry.args[0]["content"] == source and entry.args[0]["from"] == progress.rows:
                progress.add(entry.answer)
                errors += entry.answer["errors"][: MAX_ERRORS - len(errors)]
    return progress, errors, lines


def _store_batch(
    task: Task, load: Load, rows: Sequence[Any], before: int, position: int
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Stores the batch that starts after `before` rows; returns its counts and every error by row."""
    refuses = load.to.get("on_error", "refuse") == "refuse"
    data, form = _encode_batch(rows, load, before)
    options = datapool.ImportOptions(
        form,
        tuple(load.to.get("key", ())),
        "refuse" if refuses else "report",
        delimiter="," if form == "csv" else "",
        in_write=True,
    )

    def commit() -> tuple[dict[str, int], list[dict[str, Any]]]:
        check_fence(task.claim)
        report = datapool.import_entities(task.claim.scope, load.to["collection"], io.BytesIO(data), options)
        numbers = dict(_lines(data)) if form == "csv" and report.errors else {}
        row_errors = [
            {"row": before + numbers.get(e["line"], e["line"]), **{n: e[n] for n in ("field", "code", "message")}}
            for e in report.errors
        ]
        if report.failed and refuses:
            raise _rows_refused(row_errors, before)
        counts = {name: getattr(report, name) for name in COUNTED}
        args = [{"content": load.source, "from": before, "rows": len(rows)}]
        entry = JournalEntry(
            call=position + 1, position=position, method=METHOD, args=args, ok=True,
            answer={**counts, "errors": row_errors[:MAX_ERRORS]}, clock=[],
        )
        append_journal(task.claim, task.run_key, [entry])
        return counts, row_errors

    try:
        return db.write(commit)
    except ApplianceError as error:
        raise from_appliance_error(error) from error


def _rows_refused(row_errors: list[dict[str, Any]], before: int) -> StepFailed:
    first = row_errors[0]
    where = f"row {first['row']}" + (f", {first['field']}" if first["field"] else "")
    message = Sentence(
        "%(where)s: %(message)s (the %(before)s rows of earlier batches are stored)",
        where=where, message=first["message"], before=before,
    )
    return StepFailed(make_error("rows_refused", "validation", message, details=row_errors[:20]))


def _lines(data: bytes) -> Iterator[tuple[int, int]]:
    """For each row of a CSV batch, the line on which it starts and its number in the batch, from 1."""
    reader = csv.reader(io.StringIO(data.decode(), newline=""))
    next(reader)
    line = reader.line_num + 1
    for number, _ in enumerate(reader, 1):
        yield line, number
        line = reader.line_num + 1


def _encode_batch(rows: Sequence[Any], load: Load, before: int) -> tuple[bytes, Literal["csv", "ndjson"]]:
    """The batch in the format of the collection's import, with columns named like fields."""
    selected = [_select_fields(row, load.to.get("fields"), before + number) for number, row in enumerate(rows, 1)]
    if not load.as_text:
        return b"".join(dump_json(row).encode() + b"\n" for row in selected), "ndjson"
    names = list(dict.fromkeys(name for row in selected for name in row))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([[scalar_text(row.get(name)) for name in names] for row in selected])
    return text.getvalue().encode(), "csv"


def _select_fields(row: Any, fields: Mapping[str, str] | None, number: int) -> dict[str, Any]:
    """The row's values by field; `fields` maps fields to columns."""
    if not isinstance(row, dict):
        raise StepFailed(
            make_error(
                "rows_refused",
                "validation",
                Sentence("row %(number)s has no names for its values; set the table's `header`", number=number),
            )
        )
    if fields is None:
        return row
    missing = [column for column in fields.values() if column not in row]
    if missing:
        raise StepFailed(
            make_error(
                "rows_refused",
                "validation",
                Sentence("row %(number)s has no column %(missing)s", number=number, missing=repr(missing[0][:60])),
            )
        )
    return {name: row[column] for name, column in fields.items()}
