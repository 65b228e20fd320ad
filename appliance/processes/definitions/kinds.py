"""Parses the member of each step kind (`rule`, `code`, `wait`, …) that contains no other steps."""

from collections.abc import Callable, Mapping
from typing import Any

from appliance.core.errors import ValidationFailed
from appliance.governance.approvals import KINDS as HUMAN_KINDS
from appliance.governance.approvals import MEMBERS as REQUEST_MEMBERS
from appliance.governance.approvals import Origin, parse_request
from appliance.processes.files.members import parse_file_step, parse_ocr_step
from appliance.processes.host.model_calls import parse_llm_step

from .nodes import MAX_EVENT_NAME
from .reader import Reader
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


def parse_rule(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("expression", "decision", "input"))
    if ("expression" in members) == ("decision" in members):
        reader.problem(pointer, "a rule has either `expression` or `decision`")
        return {}, {}
    if "expression" in members:
        if "input" in members:
            reader.problem(f"{pointer}/input", "only a decision has an input; an expression can already use every name")
        if members["expression"] is None:
            reader.problem(f"{pointer}/expression", 'this must be an expression: a text that starts with "="')
        expression = reader.expression(members["expression"], f"{pointer}/expression")
        return {}, {"expression": expression} if expression else {}
    decision = members.get("decision")
    if isinstance(decision, str) and decision not in reader.files:
        reader.problem(f"{pointer}/decision", f"there is no file {decision[:100]!r} in this process")
    elif not isinstance(decision, str | dict):
        reader.problem(f"{pointer}/decision", "this must be a file's path or a JSON Decision Model")
    templates = {"input": reader.template(members["input"], f"{pointer}/input")} if "input" in members else {}
    return {"decision": decision}, templates


def parse_code(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("language", "file", "source"), ("language",))
    language = reader.choice(members.get("language"), f"{pointer}/language", LANGUAGES)
    if ("file" in members) == ("source" in members):
        reader.problem(pointer, "code has either `file` or `source`")
    if "file" in members:
        file = reader.text(members["file"], f"{pointer}/file")
        if file and file not in reader.files:
            reader.problem(f"{pointer}/file", f"there is no file {file[:100]!r} in this process")
    if "source" in members:
        reader.text(members["source"], f"{pointer}/source")
    return {"language": language, "file": members.get("file"), "source": members.get("source")}, {}


def parse_integration(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("use", "action", "input"), ("use", "action"))
    templates = {"input": reader.template(members["input"], f"{pointer}/input")} if "input" in members else {}
    use = reader.text(members.get("use"), f"{pointer}/use")
    return {"use": use, "action": reader.text(members.get("action"), f"{pointer}/action")}, templates


def parse_datapool(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("collection", *OPERATIONS))
    chosen = [name for name in OPERATIONS if name in members]
    if len(chosen) != 1:
        reader.problem(pointer, f"a datapool step has exactly one of {', '.join(OPERATIONS)}")
        return {}, {}
    operation = chosen[0]
    if operation == "batch" and "collection" in members:
        reader.problem(f"{pointer}/collection", "every operation of a batch names its own collection")
    collection = "" if operation == "batch" else reader.text(members.get("collection"), f"{pointer}/collection")
    at = f"{pointer}/{operation}"
    _check_operation(reader, operation, members[operation], at)
    return {"collection": collection, "operation": operation}, {"arguments": reader.template(members[operation], at)}


def _check_operation(reader: Reader, operation: str, value: Any, pointer: str) -> None:
    """A literal must have the operation's members; an expression is checked at run time."""
    if isinstance(value, str) and value.startswith("="):
        return
    if operation == "batch" and isinstance(value, list):
        return
    if operation in ("query", "batch"):
        reader.open_mapping(value, pointer)
    else:
        required = OPERATIONS[operation]
        reader.mapping(value, pointer, required, required)


def parse_wait(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("for", "until", "event", "timeout"))
    if sum(name in members for name in ("for", "until", "event")) != 1:
        reader.problem(pointer, "a wait has exactly one of `for`, `until` and `event`")
        return {}, {}
    if "event" in members:
        return _parse_event(reader, members, pointer)
    if "timeout" in members:
        reader.problem(f"{pointer}/timeout", "only the wait for an event has a timeout")
    name = "for" if "for" in members else "until"
    template = reader.template(members[name], f"{pointer}/{name}")
    if name == "for" and members["for"] is None:
        reader.problem(f"{pointer}/for", "this must be a duration or an expression")
    elif name == "for" and template.constant:
        reader.duration(members["for"], f"{pointer}/for")
    elif name == "until" and not isinstance(members["until"], str):
        reader.problem(f"{pointer}/until", "this must be an RFC 3339 time or an expression")
    return {"awaits": "time"}, {name: template}


def _parse_event(reader: Reader, members: Settings, pointer: str) -> Parsed:
    template = reader.template({name: members[name] for name in ("event", "timeout") if name in members}, pointer)
    dynamic = _dynamic_members(template)
    if len(reader.text(members["event"], f"{pointer}/event", "event")) > MAX_EVENT_NAME and "event" not in dynamic:
        reader.problem(f"{pointer}/event", f"a name has at most {MAX_EVENT_NAME} characters")
    if "timeout" not in dynamic:
        reader.duration(members.get("timeout"), f"{pointer}/timeout", minimum=1)
    return {"awaits": "event"}, {"arguments": template}


def _dynamic_members(template: Template) -> set[str | int]:
    """The members of an object that have expressions in them."""
    return {place[0] for place, _ in template.slots}


def parse_human(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, (*REQUEST_MEMBERS, "on_timeout"), ("kind", "title"))
    on_timeout = reader.choice(members.get("on_timeout", "reject"), f"{pointer}/on_timeout", ON_TIMEOUT)
    template = reader.template({name: members[name] for name in REQUEST_MEMBERS if name in members}, pointer)
    if not {"kind", "title"} <= members.keys():
        return {}, {}
    kind = reader.choice(members["kind"], f"{pointer}/kind", HUMAN_KINDS)
    if kind == members["kind"] and isinstance(template.value, dict):
        _check_request(reader, template, pointer)
    return {"on_timeout": on_timeout}, {"arguments": template}


def _check_request(reader: Reader, template: Template, pointer: str) -> None:
    """Literal members must be valid; expressions are checked at run time."""
    dynamic = _dynamic_members(template)
    stand_ins = {"title": "title", "choices": ["choice"]}
    literals = {name: value for name, value in template.value.items() if name not in dynamic}
    try:
        parse_request({name: stand_ins[name] for name in dynamic if name in stand_ins} | literals, Origin("", "", "", ""), 0)
    except ValidationFailed as error:
        reader.problem(f"{pointer}{error.details[0].pointer if error.details else ''}", error.message)


def parse_process(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("use", "input", "wait"), ("use",))
    waits = members.get("wait", True)
    if not isinstance(waits, bool):
        reader.problem(f"{pointer}/wait", "this must be true or false")
    process_input = members.get("input", {})
    if not isinstance(process_input, dict) and not (isinstance(process_input, str) and process_input.startswith("=")):
        reader.problem(f"{pointer}/input", "this must be an object or an expression")
    templates = {"input": reader.template(process_input, f"{pointer}/input")} if "input" in members else {}
    use = reader.slug(members["use"], f"{pointer}/use") if "use" in members else ""
    return {"use": use, "wait": waits}, templates


def parse_agent(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("use", "input", "trusted", "timeout"), ("use",))
    trusted = members.get("trusted", False)
    if not isinstance(trusted, bool):
        reader.problem(f"{pointer}/trusted", "this must be true or false")
    agent_input = members.get("input", {})
    if not isinstance(agent_input, dict | str) or agent_input == "":
        reader.problem(f"{pointer}/input", "this must be an object, a text or an expression")
    templates = {"input": reader.template(agent_input, f"{pointer}/input")} if "input" in members else {}
    use = reader.slug(members["use"], f"{pointer}/use") if "use" in members else ""
    timeout_ms = reader.duration(members.get("timeout"), f"{pointer}/timeout", minimum=1)
    return {"use": use, "trusted": trusted, "timeout_ms": timeout_ms}, templates


def parse_stop(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("output",))
    return {}, {"output": reader.template(members["output"], f"{pointer}/output")} if "output" in members else {}


PARSERS: Mapping[str, Callable[[Reader, Any, str], Parsed]] = {
    "rule": parse_rule,
    "code": parse_code,
    "integration": parse_integration,
    "datapool": parse_datapool,
    "llm": parse_llm_step,
    "file": parse_file_step,
    "ocr": parse_ocr_step,
    "agent": parse_agent,
    "human": parse_human,
    "process": parse_process,
    "wait": parse_wait,
    "stop": parse_stop,
}
