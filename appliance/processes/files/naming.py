"""Call names for `file` and `ocr` steps, used for mocks and in reports."""

from appliance.processes.definitions.nodes import Step

LOAD = "file.load"
READ_FILES = frozenset({"file.parse", "ocr.read"})


def file_method(step: Step) -> str:
    """The call name of a step: `file.parse` and `ocr.read` only read, `file.load` stores rows, others create documents."""
    if step.kind == "ocr":
        return "ocr.read"
    if "to" in step.settings:
        return LOAD
    return "file.write" if "as" in step.settings else f"file.{step.settings['operation']}"
