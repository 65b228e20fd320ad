"""`file`: reads, writes, converts and packs documents, in a worker process that reaches nothing."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import PurePath
from typing import IO, Any

from appliance.core.sentences import Sentence
from appliance.documents import Content, clean_name
from appliance.formats import Answer, Work
from appliance.processes.engine.failing import StepFailed, failed_validation, make_error
from appliance.processes.engine.task import Result, Task, Tools
from appliance.processes.files import loading
from appliance.processes.files.contents import (
    format_of,
    made_document,
    made_documents,
    open_document,
    spool,
    spool_values,
    worked,
)
from appliance.processes.files.members import ROW_FORMATS, Variant, check_given, options_of

MOST_UNPACKED = 1_000


def perform(tools: Tools, task: Task) -> Result:
    """What was read, or the document that was made."""
    settings = task.step.settings
    given = given_members(task, (settings["operation"], settings.get("format")))
    return _PERFORMERS[settings["operation"]](tools, task, given)


def given_members(task: Task, variant: Variant) -> dict[str, Any]:
    """The step's members with their expressions evaluated, null being as good as absent; StepFailed unless they are right."""
    settings = task.step.settings
    given = {name: value for name, value in task.filled["arguments"].items() if value is not None or name == "data"}
    constant = {name: settings[name] for name in ("to", "as") if name in settings}
    problems = check_given(variant, {**given, **constant})
    if problems:
        raise failed_validation("; ".join(problems[:5]), f"{task.step.pointer}/{task.step.kind}", "arguments_invalid")
    return given


def _told(operation: str, form: str, given: Mapping[str, Any]) -> dict[str, Any]:
    known = options_of(operation, form)
    return {name: value for name, value in given.items() if name in known}


# -- parse


def _parse(tools: Tools, task: Task, given: Mapping[str, Any]) -> Result:
    settings = task.step.settings
    content = open_document(tools, task, given["document"], given.get("revision"))
    form = settings.get("format") or format_of(content)
    goes_out = "to" in settings or "as" in settings
    if goes_out and form not in ROW_FORMATS:
        raise failed_validation(
            Sentence("a %(form)s file has no rows; take `to` or `as` out", form=form),
            f"{task.step.pointer}/file",
            "arguments_invalid",
        )
    options = _told("parse", form, given)
    if goes_out and form in ("json", "xml") and "each" not in options:
        if form == "xml":
            raise failed_validation("name the element that is a row: `each`", f"{task.step.pointer}/file", "arguments_invalid")
        options["each"] = True
    with spool(tools, task, content) as file, worked(tools, task, Work(f"parse.{form}", options, [file])) as answer:
        if "to" in settings:
            load = loading.Load(settings["to"], f"{content.document_id}@{content.revision}", as_text=form in ("csv", "xlsx"))
            return loading.load_rows(tools, task, answer, load)
        if "as" in settings:
            name = given.get("name") or f"{PurePath(content.name).stem}.ndjson"
            return made_document(tools, task, {**given, "name": name}, answer.output, answer.facts)
        return Result(output=_shown(form, bool(options.get("each")), _inline(tools, answer, form), answer.facts))


def _inline(tools: Tools, answer: Answer, form: str) -> list[Any]:
    """The records, when the step's output can hold them."""
    if answer.size > tools.output_bytes:
        instead = "; have the rows stored with `to: {collection}` or `as: document`" if form in ROW_FORMATS else ""
        message = Sentence(
            "what was read has %(size)s bytes and a step's output at most %(output_bytes)s%(instead)s",
            size=answer.size, output_bytes=tools.output_bytes, instead=instead,
        )
        raise StepFailed(make_error("output_too_large", "validation", message))
    return list(answer.records())


def _shown(form: str, is_rows: bool, records: list[Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    if form == "pdf":
        return {"text": "\f".join(page["text"] for page in records), "pages": records, "page_count": facts["page_count"]}
    if form in ("csv", "xlsx", "ndjson") or is_rows:
        return {"rows": records, **facts}
    rest = {name: value for name, value in facts.items() if name != "count"}
    return {"text" if form == "text" else "data": records[0], **rest}


# -- write, convert


def _write(tools: Tools, task: Task, given: Mapping[str, Any]) -> Result:
    form, data = task.step.settings["format"], given["data"]
    options: dict[str, Any] = _told("write", form, given)
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
    with source() as file, worked(tools, task, Work(f"write.{form}", options, [file])) as answer:
        return made_document(tools, task, given, answer.output, answer.facts)


def _wrong_data(task: Task, wanted: str) -> StepFailed:
    return failed_validation(
        Sentence("this must be %(wanted)s", wanted=wanted), f"{task.step.pointer}/file/data", "arguments_invalid"
    )


def _spool_text(tools: Tools, text: str) -> IO[bytes]:
    file = tools.formats.scratch()
    file.write(text.encode("utf8", "replace"))
    file.flush()
    return file


def _convert(tools: Tools, task: Task, given: Mapping[str, Any]) -> Result:
    if ("document" in given) == ("content" in given):
        raise failed_validation("give either a `document` or `content`", f"{task.step.pointer}/file", "arguments_invalid")
    form = task.step.settings["format"]
    options = {**_told("convert", form, given), "format": form, "made_at": task.claim.started_at // 1000}
    with _source(tools, task, given, options) as file, worked(tools, task, Work("convert", options, [file])) as answer:
        return made_document(tools, task, given, answer.output, answer.facts)


@contextmanager
def _source(tools: Tools, task: Task, given: Mapping[str, Any], options: dict[str, Any]) -> Iterator[IO[bytes]]:
    """What is converted; its name says what it is unless the step does."""
    if "content" in given:
        options["encoding"] = "utf-8"
        with _spool_text(tools, given["content"]) as file:
            yield file
        return
    content = open_document(tools, task, given["document"], given.get("revision"))
    options.setdefault("from", _kind_of(content))
    with spool(tools, task, content) as file:
        yield file


def _kind_of(content: Content) -> str:
    suffix = PurePath(content.name).suffix.lower()
    if suffix in (".html", ".htm") or content.media_type == "text/html":
        return "html"
    return "markdown" if suffix in (".md", ".markdown") or content.media_type == "text/markdown" else "text"


# -- zip, unzip


def _zip(tools: Tools, task: Task, given: Mapping[str, Any]) -> Result:
    with ExitStack() as stack:
        contents = [open_document(tools, task, each) for each in given["documents"]]
        files = [stack.enter_context(spool(tools, task, content)) for content in contents]
        options = {"names": [clean_name(content.name) for content in contents]}
        answer = stack.enter_context(worked(tools, task, Work("zip", options, files)))
        return made_document(tools, task, given, answer.output, answer.facts)


def _unzip(tools: Tools, task: Task, given: Mapping[str, Any]) -> Result:
    content = open_document(tools, task, given["document"], given.get("revision"))
    options = {"only": given["only"]} if "only" in given else {}
    with spool(tools, task, content) as file, worked(tools, task, Work("unzip", options, [file])) as answer:
        count = answer.facts["count"]
        if count > MOST_UNPACKED:
            message = Sentence(
                "the archive has %(count)s files and a step makes at most %(most_unpacked)s documents; choose them with `only`",
                count=count, most_unpacked=MOST_UNPACKED,
            )
            raise StepFailed(make_error("content_too_large", "validation", message))
        return made_documents(tools, task, given, answer)


_PERFORMERS = {"parse": _parse, "write": _write, "convert": _convert, "zip": _zip, "unzip": _unzip}
