"""The members of each kind of step that does something itself: what is allowed there, and what becomes of it."""

from collections.abc import Callable, Mapping
from typing import Any

from appliance.core.errors import ValidationFailed
from appliance.governance.approvals import KINDS as HUMAN_KINDS
from appliance.governance.approvals import MEMBERS as REQUEST_MEMBERS
from appliance.governance.approvals import Origin, parse_request
from appliance.processes.files.members import read_file, read_ocr
from appliance.processes.host.model_calls import read_llm

from .nodes import MAX_EVENT_NAME
from .reading import Reader
from .template import Template

Settings = dict[str, Any]
Parsed = tuple[Settings, dict[str, Template]]
LANGUAGES = ("typescript", "javascript", "php")
ON_TIMEOUT = ("reject", "fail", "continue")
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "create": ("values",),
    "update": ("id", "values"),
    "upsert": ("key", "values"),
    "delete": ("id",),
    "find": ("id",),
    "query": (),
    "batch": (),
}


def read_rule(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("expression", "decision", "input"))
    if ("expression" in given) == ("decision" in given):
        reader.problem(pointer, "a rule has either `expression` or `decision`")
        return {}, {}
    if "expression" in given:
        if "input" in given:
            reader.problem(f"{pointer}/input", "only a decision has an input; an expression sees every name")
        if given["expression"] is None:
            reader.problem(f"{pointer}/expression", 'this must be an expression: a text that starts with "="')
        found = reader.expression(given["expression"], f"{pointer}/expression")
        return {}, {"expression": found} if found else {}
    decision = given.get("decision")
    if isinstance(decision, str) and decision not in reader.files:
        reader.problem(f"{pointer}/decision", f"there is no file {decision[:100]!r} in this process")
    elif not isinstance(decision, str | dict):
        reader.problem(f"{pointer}/decision", "this must be a file's path or a JSON Decision Model")
    templates = {"input": reader.template(given["input"], f"{pointer}/input")} if "input" in given else {}
    return {"decision": decision}, templates


def read_code(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("language", "file", "source"), ("language",))
    language = reader.choice(given.get("language"), f"{pointer}/language", LANGUAGES)
    if ("file" in given) == ("source" in given):
        reader.problem(pointer, "code has either `file` or `source`")
    if "file" in given:
        file = reader.text(given["file"], f"{pointer}/file")
        if file and file not in reader.files:
            reader.problem(f"{pointer}/file", f"there is no file {file[:100]!r} in this process")
    if "source" in given:
        reader.text(given["source"], f"{pointer}/source")
    return {"language": language, "file": given.get("file"), "source": given.get("source")}, {}


def read_integration(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("use", "action", "input"), ("use", "action"))
    templates = {"input": reader.template(given["input"], f"{pointer}/input")} if "input" in given else {}
    use = reader.text(given.get("use"), f"{pointer}/use")
    return {"use": use, "action": reader.text(given.get("action"), f"{pointer}/action")}, templates


def read_datapool(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("collection", *OPERATIONS))
    chosen = [name for name in OPERATIONS if name in given]
    if len(chosen) != 1:
        reader.problem(pointer, f"a datapool step has exactly one of {', '.join(OPERATIONS)}")
        return {}, {}
    operation = chosen[0]
    if operation == "batch" and "collection" in given:
        reader.problem(f"{pointer}/collection", "every operation of a batch names its own collection")
    collection = "" if operation == "batch" else reader.text(given.get("collection"), f"{pointer}/collection")
    at = f"{pointer}/{operation}"
    _check_operation(reader, operation, given[operation], at)
    return {"collection": collection, "operation": operation}, {"arguments": reader.template(given[operation], at)}


def _check_operation(reader: Reader, operation: str, value: Any, pointer: str) -> None:
    """What is written out must have the operation's members; an expression is looked at when it has a value."""
    if isinstance(value, str) and value.startswith("="):
        return
    if operation == "batch" and isinstance(value, list):
        return
    if operation in ("query", "batch"):
        reader.open_mapping(value, pointer)
    else:
        required = OPERATIONS[operation]
        reader.mapping(value, pointer, required, required)


def read_wait(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("for", "until", "event", "timeout"))
    if sum(name in given for name in ("for", "until", "event")) != 1:
        reader.problem(pointer, "a wait has exactly one of `for`, `until` and `event`")
        return {}, {}
    if "event" in given:
        return _read_event(reader, given, pointer)
    if "timeout" in given:
        reader.problem(f"{pointer}/timeout", "only the wait for an event has a timeout")
    name = "for" if "for" in given else "until"
    template = reader.template(given[name], f"{pointer}/{name}")
    if name == "for" and given["for"] is None:
        reader.problem(f"{pointer}/for", "this must be a duration or an expression")
    elif name == "for" and template.constant:
        reader.duration(given["for"], f"{pointer}/for")
    elif name == "until" and not isinstance(given["until"], str):
        reader.problem(f"{pointer}/until", "this must be an RFC 3339 time or an expression")
    return {"awaits": "time"}, {name: template}


def _read_event(reader: Reader, given: Settings, pointer: str) -> Parsed:
    template = reader.template({name: given[name] for name in ("event", "timeout") if name in given}, pointer)
    dynamic = _dynamic_members(template)
    if len(reader.text(given["event"], f"{pointer}/event", "event")) > MAX_EVENT_NAME and "event" not in dynamic:
        reader.problem(f"{pointer}/event", f"a name has at most {MAX_EVENT_NAME} characters")
    if "timeout" not in dynamic:
        reader.duration(given.get("timeout"), f"{pointer}/timeout", least=1)
    return {"awaits": "event"}, {"arguments": template}


def _dynamic_members(template: Template) -> set[str | int]:
    """The members of an object that have expressions in them."""
    return {place[0] for place, _ in template.slots}


def read_human(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, (*REQUEST_MEMBERS, "on_timeout"), ("kind", "title"))
    on_timeout = reader.choice(given.get("on_timeout", "reject"), f"{pointer}/on_timeout", ON_TIMEOUT)
    template = reader.template({name: given[name] for name in REQUEST_MEMBERS if name in given}, pointer)
    if not {"kind", "title"} <= given.keys():
        return {}, {}
    kind = reader.choice(given["kind"], f"{pointer}/kind", HUMAN_KINDS)
    if kind == given["kind"] and isinstance(template.value, dict):
        _check_request(reader, template, pointer)
    return {"on_timeout": on_timeout}, {"arguments": template}


def _check_request(reader: Reader, template: Template, pointer: str) -> None:
    """What is written out must be right; an expression is looked at when it has a value."""
    dynamic = _dynamic_members(template)
    stand_ins = {"title": "title", "choices": ["choice"]}
    written = {name: value for name, value in template.value.items() if name not in dynamic}
    try:
        parse_request({name: stand_ins[name] for name in dynamic if name in stand_ins} | written, Origin("", "", "", ""), 0)
    except ValidationFailed as error:
        reader.problem(f"{pointer}{error.details[0].pointer if error.details else ''}", error.message)


def read_process(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("use", "input", "wait"), ("use",))
    waits = given.get("wait", True)
    if not isinstance(waits, bool):
        reader.problem(f"{pointer}/wait", "this must be true or false")
    entered = given.get("input", {})
    if not isinstance(entered, dict) and not (isinstance(entered, str) and entered.startswith("=")):
        reader.problem(f"{pointer}/input", "this must be an object or an expression")
    templates = {"input": reader.template(entered, f"{pointer}/input")} if "input" in given else {}
    use = reader.slug(given["use"], f"{pointer}/use") if "use" in given else ""
    return {"use": use, "wait": waits}, templates


def read_agent(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("use", "input", "trusted", "timeout"), ("use",))
    trusted = given.get("trusted", False)
    if not isinstance(trusted, bool):
        reader.problem(f"{pointer}/trusted", "this must be true or false")
    entered = given.get("input", {})
    if not isinstance(entered, dict | str) or entered == "":
        reader.problem(f"{pointer}/input", "this must be an object, a text or an expression")
    templates = {"input": reader.template(entered, f"{pointer}/input")} if "input" in given else {}
    use = reader.slug(given["use"], f"{pointer}/use") if "use" in given else ""
    timeout_ms = reader.duration(given.get("timeout"), f"{pointer}/timeout", least=1)
    return {"use": use, "trusted": trusted, "timeout_ms": timeout_ms}, templates


def read_stop(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("output",))
    return {}, {"output": reader.template(given["output"], f"{pointer}/output")} if "output" in given else {}


READERS: Mapping[str, Callable[[Reader, Any, str], Parsed]] = {
    "rule": read_rule,
    "code": read_code,
    "integration": read_integration,
    "datapool": read_datapool,
    "llm": read_llm,
    "file": read_file,
    "ocr": read_ocr,
    "agent": read_agent,
    "human": read_human,
    "process": read_process,
    "wait": read_wait,
    "stop": read_stop,
}
