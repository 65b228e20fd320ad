"""Copies document contents for a formats worker, and stores the files it produces as documents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import IO, Any

from appliance import formats
from appliance.core import clock
from appliance.core.database.db import dump_json
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence
from appliance.documents import Content, Document, NewDocument, clean_name
from appliance.formats import Answer, Bounds, FormatFailed, Work
from appliance.processes.engine.failures import StepFailed, failed_validation, from_appliance_error, make_error
from appliance.processes.engine.task import Result, StepServices, Task
from appliance.processes.host.journal import Cancelled

CHUNK = 1 << 20
BUSY = "formats_busy"
_BY_SUFFIX = {
    ".csv": "csv", ".tsv": "csv", ".xlsx": "xlsx", ".xlsm": "xlsx", ".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson",
    ".xml": "xml", ".txt": "text", ".md": "text", ".log": "text", ".pdf": "pdf",
}  # fmt: skip
_BY_TYPE = {
    "text/csv": "csv", "application/json": "json", "application/xml": "xml", "text/xml": "xml", "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx", "text/plain": "text", "text/markdown": "text",
    "application/x-ndjson": "ndjson",
}  # fmt: skip


def open_document(tools: StepServices, task: Task, reference: Any, revision: int | None = None) -> Content:
    """Opens the content of a document given by its id or an object with an id; raises StepFailed."""
    document_id = reference.get("id") if isinstance(reference, Mapping) else reference
    if not isinstance(document_id, str):
        raise failed_validation(
            "this must be the id of a document", f"{task.step.pointer}/{task.step.kind}/document", "arguments_invalid"
        )
    try:
        return tools.documents.open_content(task.claim.scope, document_id, revision)
    except ApplianceError as error:
        raise from_appliance_error(error) from error


def detect_format(content: Content) -> str:
    """The format that follows from the name or the media type; raises StepFailed when neither is known."""
    detected = _BY_SUFFIX.get(PurePath(content.name).suffix.lower()) or _BY_TYPE.get(content.media_type)
    if detected is None:
        message = Sentence(
            "the format of %(name)s (%(media_type)s) is not known; set the step's `format`",
            name=repr(content.name[:80]), media_type=content.media_type,
        )
        raise StepFailed(make_error("format_unknown", "validation", message))
    return detected


def spool(tools: StepServices, task: Task, content: Content) -> IO[bytes]:
    """Copies the content into an unnamed temporary file for the worker."""
    file = tools.formats.scratch()
    try:
        for piece in content.pieces(0, content.size):
            file.write(piece)
            if task.is_cancelled():
                raise Cancelled
    except BaseException:
        file.close()
        raise
    file.flush()
    return file


def spool_values(tools: StepServices, values: Sequence[Any]) -> IO[bytes]:
    """Writes values as JSON lines into a temporary file."""
    file = tools.formats.scratch()
    for value in values:
        file.write(dump_json(value).encode() + b"\n")
    file.flush()
    return file


@contextmanager
def run_work(tools: StepServices, task: Task, work: Work, default_ms: int | None = None) -> Iterator[Answer]:
    """Performs work in a formats worker and yields its answer; errors become the step's failure."""
    memory = task.step.limits.memory_mb or tools.formats.settings.memory_mb
    wall = task.wall_ms(default_ms or tools.default_time_ms)
    bounds = Bounds(wall / 1000, memory, tools.formats.settings.written_bytes)
    try:
        with tools.formats.perform(work, bounds, task.is_cancelled) as answer:
            yield answer
    except formats.Cancelled:
        raise Cancelled from None
    except FormatFailed as failed:
        raise StepFailed(make_error(failed.code, failed.failure_class, failed.message)) from failed


def create_document(
    tools: StepServices, task: Task, members: Mapping[str, Any], source: IO[bytes], facts: Mapping[str, Any]
) -> Result:
    """Stores a file as a document: its bytes now, its row in the transaction that records the step, so that it exists once."""
    new = _new_document(members, members["name"])
    content = tools.documents.store_content(task.claim.scope, source)

    def commit() -> dict[str, Any]:
        return {"document": to_view(tools.documents.create_document(task.claim.scope, new, content)), **facts}

    return Result(in_commit=commit)


def create_documents(tools: StepServices, task: Task, members: Mapping[str, Any], answer: Answer) -> Result:
    """Stores each unzipped file as a document in the folder it had in the archive."""
    files = []
    for each in answer.facts["files"]:
        if task.is_cancelled():
            raise Cancelled
        path = PurePath(each["path"])
        folder = "/".join([*filter(None, [members.get("folder", "")]), *(clean_name(part) for part in path.parent.parts)])
        new = _new_document({**members, "folder": folder}, clean_name(path.name))
        piece = _pieces(answer.output, each["offset"], each["size"])
        files.append((new, each["path"], tools.documents.store_content(task.claim.scope, piece)))

    def commit() -> dict[str, Any]:
        scope = task.claim.scope
        documents = [
            {**to_view(tools.documents.create_document(scope, new, content)), "path": path} for new, path, content in files
        ]
        return {"documents": documents, "count": len(documents)}

    return Result(in_commit=commit)


def _new_document(members: Mapping[str, Any], name: str) -> NewDocument:
    return NewDocument(name, None, members.get("folder", ""), tuple(members.get("tags", ())))


def _pieces(file: IO[bytes], start: int, size: int) -> Iterator[bytes]:
    file.seek(start)
    while size > 0:
        piece = file.read(min(size, CHUNK))
        size -= len(piece)
        yield piece


def to_view(document: Document) -> dict[str, Any]:
    """A created document, as in the step's output."""
    return {
        "id": document.id, "name": document.name, "folder": document.folder, "tags": list(document.tags),
        "media_type": document.media_type, "size": document.size, "sha256": document.sha256, "revision": document.revision,
    }  # fmt: skip


def make_deadline_check(task: Task, tools: StepServices) -> Callable[[], None]:
    """Returns a check that ends the step when it is cancelled or out of time."""
    wall = task.wall_ms(tools.default_time_ms)
    ends = clock.monotonic() + wall / 1000

    def check() -> None:
        if task.is_cancelled():
            raise Cancelled
        if clock.monotonic() > ends:
            message = Sentence(
                "loading the rows took longer than the %(wall)s s allowed for this step; a retry continues after the stored rows",
                wall=f"{wall / 1000:g}",
            )
            raise StepFailed(make_error("content_timeout", "timeout", message))

    return check
