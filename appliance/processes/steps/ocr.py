"""`ocr`: recognizes the text of a scanned document, with the position and confidence of each line."""

from typing import Any

from appliance.formats import Work
from appliance.processes.engine.failures import StepFailed, make_error
from appliance.processes.engine.task import Result, StepServices, Task
from appliance.processes.files.contents import open_document, run_work, spool
from appliance.processes.files.members import options_of

from .file import evaluated_members

# A page takes seconds, so the default time limit is longer than for other steps.
DEFAULT_TIME_MS = 300_000


def perform(tools: StepServices, task: Task) -> Result:
    """The output is `{text, confidence, pages: [{page, width, height, text, confidence, lines}]}`."""
    members = evaluated_members(task, ("ocr", None))
    content = open_document(tools, task, members["document"], members.get("revision"))
    options = {name: value for name, value in members.items() if name in options_of("ocr", "")}
    with spool(tools, task, content) as file, run_work(tools, task, Work("ocr", options, [file]), DEFAULT_TIME_MS) as answer:
        if answer.size > 2 * tools.output_bytes:
            message = "the recognised text is larger than a step's output; choose fewer `pages`, or leave the `boxes` out"
            raise StepFailed(make_error("output_too_large", "validation", message))
        pages = [_page(record, with_lines=members.get("boxes", True)) for record in answer.records()]
    characters = sum(len(page["text"]) for page in pages)
    confidence = sum(page["confidence"] * len(page["text"]) for page in pages) / max(1, characters)
    return Result(output={"text": "\f".join(page["text"] for page in pages), "confidence": round(confidence, 4), "pages": pages})


def _page(record: dict[str, Any], *, with_lines: bool) -> dict[str, Any]:
    return record if with_lines else {name: value for name, value in record.items() if name != "lines"}
