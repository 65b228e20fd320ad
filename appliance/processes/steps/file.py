"""`file`: reads, writes, converts, zips and unzips documents, in an isolated worker process."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import PurePath
from typing import IO, Any

from appliance.core.sentences import Sentence
from appliance.documents import Content, clean_name
from appliance.formats import Answer, Work
from appliance.processes.engine.failures import StepFailed, failed_validation, make_error
from appliance.processes.engine.task import Result, StepServices, Task
from appliance.processes.files import loading
from appliance.processes.files.contents import (
    create_document,
    create_documents,
    detect_format,
    open_document,
    run_work,
    spool,
    spool_values,
)
from appliance.processes.files.members import ROW_FORMATS, Variant, check_members, options_of

MOST_UNPACKED = 1_000


def perform(tools: StepServices, task: Task) -> Result:
    """Performs the operation; the output is the content read or the document created."""
    settings = task.step.settings
    members = evaluated_members(task, (settings["operation"], settings.get("format")))
    return _PERFORMERS[settings["operation"]](tools, task, members)


def evaluated_members(task: Task, variant: Variant) -> dict[str, Any]:
    """The step's evaluated settings, without those that are null; raises StepFailed when they are invalid."""
    settings = task.step.settings
    members = {name: value for name, value in task.filled["arguments"].items() if value is not None or name == "data"}
    constant = {name: settings[name] for name in ("to", "as") if name in settings}
    problems = check_members(variant, {**members, **constant})
    if problems:
        raise failed_validation("; ".join(problems[:5]), f"{task.step.pointer}/{task.step.kind}", "arguments_invalid")
    return members


def _pick_options(operation: str, form: str, members: Mapping[str, Any]) -> dict[str, Any]:
    names = options_of(operation, form)
    return {name: value for name, value in members.items() if name in names}


# -- parse


def _parse(tools: StepServices, task: Task, members: Mapping[str, Any]) -> Result:
    settings = task.step.settings
    content = open_document(tools, task, members["document"], members.get("revision"))
    form = settings.get("format") or detect_format(content)
    is_stored = "to" in settings or "as" in settings
    if is_stored and form not in ROW_FORMATS:
        raise failed_validation(
            Sentence("a %(form)s file has no rows; remove `to` or `as`", form=form),
            f"{task.step.pointer}/file",
            "arguments_invalid",
        )
    options = _pick_options("parse", form, members)
    if is_stored and form in ("json", "xml") and "each" not in options:
        if form == "xml":
            raise failed_validation("name the element of a row with `each`", f"{task.step.pointer}/file", "arguments_invalid")
        options["each"] = True
    with spool(tools, task, content) as file, run_work(tools, task, Work(f"parse.{form}", options, [file])) as answer:
        if "to" in settings:
            load = loading.Load(settings["to"], f"{content.document_id}@{content.revision}", as_text=form in ("csv", "xlsx"))
            return loading.load_rows(tools, task, answer, load)
        if "as" in settings:
            name = members.get("name") or f"{PurePath(content.name).stem}.ndjson"
            return create_document(tools, task, {**members, "name": name}, answer.output, answer.facts)
        return Result(output=_to_output(form, bool(options.get("each")), _inline(tools, answer, form), answer.facts))


def _inline(tools: StepServices, answer: Answer, form: str) -> list[Any]:
    """The records; raises StepFailed when they are too large for the step's output."""
    if answer.size > tools.output_bytes:
        instead = "; store the rows with `to: {collection}` or `as: document`" if form in ROW_FORMATS else ""
        message = Sentence(
            "the content read has %(size)s bytes; a step's output can have at most %(output_bytes)s%(instead)s",
            size=answer.size, output_bytes=tools.output_bytes, instead=instead,
        )
        raise StepFailed(make_error("output_too_large", "validation", message))
    return list(answer.records())


def _to_output(form: str, is_rows: bool, records: list[Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    if form == "pdf":
        return {"text": "\f".join(page["text"] for page in records), "pages": records, "page_count": facts["page_count"]}
    if form in ("csv", "xlsx", "ndjson") or is_rows:
        return {"rows": records, **facts}
    rest = {name: value for name, value in facts.items() if name != "count"}
    return {"text" if form == "text" else "data": records[0], **rest}


# -- write, convert


def _write(tools: StepServices, task: Task, members: Mapping[str, Any]) -> Result:
    form, data = task.step.settings["format"], members["data"]
    options: dict[str, Any] = _pick_options("write", form, members)
    if form == "text":
        if not isinstance(data, str):
            raise _wrong_data(task, "a text")
        source = partial(_spool_text, tools, data)
    elif isinstance(data, list):
        source = partial(spool_values, tools, data)
    elif form in ("json", "xml"):
        options["whole"] = True
        source = partial(spool_values, tools, [data])
    else:
        raise _wrong_data(task, "a list of rows")
    with source() as file, run_work(tools, task, Work(f"write.{form}", options, [file])) as answer:
        return create_document(tools, task, members, answer.output, answer.facts)


def _wrong_data(task: Task, expected: str) -> StepFailed:
    return failed_validation(
        Sentence("this must be %(wanted)s", wanted=expected), f"{task.step.pointer}/file/data", "arguments_invalid"
    )


def _spool_text(tools: StepServices, text: str) -> IO[bytes]:
    file = tools.formats.scratch()
    file.write(text.encode("utf8", "replace"))
    file.flush()
    return file


def _convert(tools: StepServices, task: Task, members: Mapping[str, Any]) -> Result:
    if ("document" in members) == ("content" in members):
        raise failed_validation("give either a `document` or `content`", f"{task.step.pointer}/file", "arguments_invalid")
    form = task.step.settings["format"]
    options = {**_pick_options("convert", form, members), "format": form, "made_at": task.claim.started_at // 1000}
    with _source(tools, task, members, options) as file, run_work(tools, task, Work("convert", options, [file])) as answer:
        return create_document(tools, task, members, answer.output, answer.facts)


@contextmanager
def _source(tools: StepServices, task: Task, members: Mapping[str, Any], options: dict[str, Any]) -> Iterator[IO[bytes]]:
    """The content to convert; its source format follows from its name unless the step sets `from`."""
    if "content" in members:
        options["encoding"] = "utf-8"
        with _spool_text(tools, members["content"]) as file:
            yield file
        return
    content = open_document(tools, task, members["document"], members.get("revision"))
    options.setdefault("from", _kind_of(content))
    with spool(tools, task, content) as file:
        yield file


def _kind_of(content: Content) -> str:
    suffix = PurePath(content.name).suffix.lower()
    if suffix in (".html", ".htm") or content.media_type == "text/html":
        return "html"
    return "markdown" if suffix in (".md", ".markdown") or content.media_type == "text/markdown" else "text"


# -- zip, unzip


def _zip(tools: StepServices, task: Task, members: Mapping[str, Any]) -> Result:
    with ExitStack() as stack:
        contents = [open_document(tools, task, each) for each in members["documents"]]
        files = [stack.enter_context(spool(tools, task, content)) for content in contents]
        options = {"names": [clean_name(content.name) for content in contents]}
        answer = stack.enter_context(run_work(tools, task, Work("zip", options, files)))
        return create_document(tools, task, members, answer.output, answer.facts)


def _unzip(tools: StepServices, task: Task, members: Mapping[str, Any]) -> Result:
    content = open_document(tools, task, members["document"], members.get("revision"))
    options = {"only": members["only"]} if "only" in members else {}
    with spool(tools, task, content) as file, run_work(tools, task, Work("unzip", options, [file])) as answer:
        count = answer.facts["count"]
        if count > MOST_UNPACKED:
            message = Sentence(
                "the archive has %(count)s files; a step can create at most %(most_unpacked)s documents; select them with `only`",
                count=count, most_unpacked=MOST_UNPACKED,
            )
            raise StepFailed(make_error("content_too_large", "validation", message))
        return create_documents(tools, task, members, answer)


_PERFORMERS = {"parse": _parse, "write": _write, "convert": _convert, "zip": _zip, "unzip": _unzip}
