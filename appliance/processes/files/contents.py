"""Contents of documents on their way into a worker process, and files that become documents."""

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
from appliance.processes.engine.failing import StepFailed, failed_validation, from_coded, make_error
from appliance.processes.engine.task import Result, Task, Tools
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


def open_document(tools: Tools, task: Task, given: Any, revision: int | None = None) -> Content:
    """The content of a document that is named by its id, or by an object with it; StepFailed."""
    document_id = given.get("id") if isinstance(given, Mapping) else given
    if not isinstance(document_id, str):
        raise failed_validation(
            "this must be the id of a document", f"{task.step.pointer}/{task.step.kind}/document", "arguments_invalid"
        )
    try:
        return tools.documents.open_content(task.claim.scope, document_id, revision)
    except ApplianceError as error:
        raise from_coded(error) from error


def format_of(content: Content) -> str:
    """The format that name and media type speak of; StepFailed when neither does."""
    found = _BY_SUFFIX.get(PurePath(content.name).suffix.lower()) or _BY_TYPE.get(content.media_type)
    if found is None:
        message = Sentence(
            "nothing says what format %(name)s (%(media_type)s) has; give the step's `format`",
            name=repr(content.name[:80]), media_type=content.media_type,
        )
        raise StepFailed(make_error("format_unknown", "validation", message))
    return found


def spool(tools: Tools, task: Task, content: Content) -> IO[bytes]:
    """A nameless copy that the worker may read."""
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


def spool_values(tools: Tools, values: Sequence[Any]) -> IO[bytes]:
    """Values as lines of JSON."""
    file = tools.formats.scratch()
    for value in values:
        file.write(dump_json(value).encode() + b"\n")
    file.flush()
    return file


@contextmanager
def worked(tools: Tools, task: Task, work: Work, default_ms: int | None = None) -> Iterator[Answer]:
    """The worker's answer; what goes wrong is the step's failure."""
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


def made_document(tools: Tools, task: Task, given: Mapping[str, Any], source: IO[bytes], facts: Mapping[str, Any]) -> Result:
    """The file as a document: its bytes now, its row in the commit that records the step, so that there is one of it."""
    new = _new_document(given, given["name"])
    content = tools.documents.keep_content(task.claim.scope, source)

    def commit() -> dict[str, Any]:
        return {"document": shown(tools.documents.create_document(task.claim.scope, new, content)), **facts}

    return Result(in_commit=commit)


def made_documents(tools: Tools, task: Task, given: Mapping[str, Any], answer: Answer) -> Result:
    """A document for each file that was unpacked, in the folder it had."""
    made = []
    for each in answer.facts["files"]:
        if task.is_cancelled():
            raise Cancelled
        path = PurePath(each["path"])
        folder = "/".join([*filter(None, [given.get("folder", "")]), *(clean_name(part) for part in path.parent.parts)])
        new = _new_document({**given, "folder": folder}, clean_name(path.name))
        piece = _pieces(answer.output, each["offset"], each["size"])
        made.append((new, each["path"], tools.documents.keep_content(task.claim.scope, piece)))

    def commit() -> dict[str, Any]:
        scope = task.claim.scope
        found = [{**shown(tools.documents.create_document(scope, new, content)), "path": path} for new, path, content in made]
        return {"documents": found, "count": len(found)}

    return Result(in_commit=commit)


def _new_document(given: Mapping[str, Any], name: str) -> NewDocument:
    return NewDocument(name, None, given.get("folder", ""), tuple(given.get("tags", ())))


def _pieces(file: IO[bytes], start: int, size: int) -> Iterator[bytes]:
    file.seek(start)
    while size > 0:
        piece = file.read(min(size, CHUNK))
        size -= len(piece)
        yield piece


def shown(document: Document) -> dict[str, Any]:
    """What a step answers of a document it has made."""
    return {
        "id": document.id, "name": document.name, "folder": document.folder, "tags": list(document.tags),
        "media_type": document.media_type, "size": document.size, "sha256": document.sha256, "revision": document.revision,
    }  # fmt: skip


def deadline(task: Task, tools: Tools) -> Callable[[], None]:
    """A check that ends the step when it is cancelled or out of time."""
    wall = task.wall_ms(tools.default_time_ms)
    ends = clock.monotonic() + wall / 1000

    def check() -> None:
        if task.is_cancelled():
            raise Cancelled
        if clock.monotonic() > ends:
            message = Sentence(
                "the rows took longer than the %(wall)s s this step may use; a retry goes on behind what is stored",
                wall=f"{wall / 1000:g}",
            )
            raise StepFailed(make_error("content_timeout", "timeout", message))

    return check
