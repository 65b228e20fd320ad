"""What a `file` or `ocr` step does, named as calls are: to be mocked, and to be told."""

from appliance.processes.definitions.nodes import Step

LOAD = "file.load"
READ_FILES = frozenset({"file.parse", "ocr.read"})


def file_method(step: Step) -> str:
    """`file.parse` and `ocr.read` only read, `file.load` stores rows as records, all others make documents."""
    if step.kind == "ocr":
        return "ocr.read"
    if "to" in step.settings:
        return LOAD
    return "file.write" if "as" in step.settings else f"file.{step.settings['operation']}"
