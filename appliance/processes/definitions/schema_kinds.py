"""The JSON Schema of each step kind's own member, for editors."""

from appliance.governance.approvals import KINDS as HUMAN_KINDS
from appliance.governance.approvals import MAX_APPROVERS, MAX_CHOICE, MAX_CHOICES
from appliance.llm import MOST_FILES, MOST_MESSAGES, MOST_REPAIRS
from appliance.llm import ROLES as ROLES_OF_MESSAGES
from appliance.processes.files.members import file_schema, ocr_schema
from appliance.tenants import ROLES

from .kinds import LANGUAGES, ON_TIMEOUT, OPERATIONS
from .nodes import MAX_BRANCHES, MAX_EVENT_NAME
from .options import ON_ERROR
from .schema_parts import (
    ANY,
    DURATION,
    EXPRESSION,
    FLAG,
    INTERPOLATED,
    NAME,
    SLUG,
    STEPS,
    TEXT,
    JsonSchema,
    if_present,
    integer,
    list_of,
    object_schema,
    one_of,
    optional,
    or_expression,
    or_interpolated,
    without,
)


def _rule() -> JsonSchema:
    decision = {"type": ["string", "object"], "description": "A file such as rules/price.json, or a JSON Decision Model."}
    members = {"expression": EXPRESSION, "decision": decision, "input": ANY}
    return object_schema(members, **one_of("expression", "decision"), **if_present("expression", without("input")))


def _code() -> JsonSchema:
    members = {"language": {"enum": list(LANGUAGES)}, "file": TEXT, "source": TEXT}
    return object_schema(members, ("language",), **one_of("file", "source"))


def _integration() -> JsonSchema:
    return object_schema({"use": TEXT, "action": TEXT, "input": ANY}, ("use", "action"))


def _datapool() -> JsonSchema:
    members: JsonSchema = {"collection": TEXT}
    for name, required in OPERATIONS.items():
        if required:
            members[name] = or_expression(object_schema(dict.fromkeys(required, ANY), required))
        else:
            members[name] = or_expression({"type": ["object", "array"] if name == "batch" else "object"})
    of_batch: JsonSchema = {"if": {"required": ["batch"]}, "then": without("collection"), "else": {"required": ["collection"]}}
    return object_schema(members, **one_of(*OPERATIONS), **of_batch)


def _human() -> JsonSchema:
    approver = {"type": "string", "pattern": rf"^(role:({'|'.join(ROLES)})|user:.{{1,254}})$"}
    members = {
        "kind": {"enum": list(HUMAN_KINDS)},
        "title": TEXT,
        "reason": {"type": ["string", "null"]},
        "details": ANY,
        "schema": or_interpolated({"type": ["object", "null"], "description": "JSON Schema of the answer to an input."}),
        "choices": or_interpolated(
            {**list_of({"type": "string", "maxLength": MAX_CHOICE}, minItems=1, maxItems=MAX_CHOICES), "type": ["array", "null"]}
        ),
        "approvers": or_interpolated(
            {**list_of({"anyOf": [INTERPOLATED, approver]}, maxItems=MAX_APPROVERS), "type": ["array", "null"]}
            | {"examples": [["role:operator", "user:ann"]]}
        ),
        "expires": or_interpolated(optional(DURATION)),
        "on_timeout": {"enum": list(ON_TIMEOUT)},
    }
    choice = {"properties": {"kind": {"const": "choice"}}, "required": ["kind"]}
    return object_schema(
        members,
        ("kind", "title"),
        **{"if": choice, "then": {"required": ["choices"], "properties": {"choices": {"type": ["array", "string"]}}}},
    )


def _llm() -> JsonSchema:
    message = object_schema({"role": or_interpolated({"enum": list(ROLES_OF_MESSAGES)}), "content": TEXT}, ("role", "content"))
    files = or_interpolated(optional(list_of({"type": "string", "minLength": 1}, maxItems=MOST_FILES)))
    members = {
        "profile": SLUG,
        "prompt": TEXT,
        "messages": or_interpolated(list_of(or_interpolated(message), minItems=1, maxItems=MOST_MESSAGES)),
        "system": optional(TEXT),
        "input": {**ANY, "description": "Data for the model, appended to the prompt as JSON."},
        "output": {"type": "object", "description": "JSON Schema of the answer; without it the answer is a text."},
        "documents": files,
        "images": files,
        "max_tokens": or_interpolated(optional(integer(1, 1_000_000))),
        "temperature": or_interpolated({"type": ["number", "null"], "minimum": 0, "maximum": 2}),
        "repair": optional(integer(0, MOST_REPAIRS)),
        "restore": optional(FLAG),
    }
    return object_schema(members, ("profile",), **one_of("prompt", "messages"))


def _process() -> JsonSchema:
    return object_schema({"use": SLUG, "input": or_expression({"type": "object"}), "wait": FLAG}, ("use",))


def _agent() -> JsonSchema:
    description = "What the run should do: a text, or an object that is passed to it as JSON."
    run_input = {"type": ["object", "string"], "minLength": 1, "description": description}
    trusted = {**FLAG, "description": "Nothing in the input comes from outside: the run does not start tainted."}
    timeout = {**optional(DURATION), "description": "How long the step waits at most for the run to finish."}
    return object_schema({"use": SLUG, "input": run_input, "trusted": trusted, "timeout": timeout}, ("use",))


def _wait() -> JsonSchema:
    members = {
        "for": or_interpolated(DURATION),
        "until": {"type": "string", "description": "An RFC 3339 time, or an expression."},
        "event": {"anyOf": [INTERPOLATED, {**TEXT, "maxLength": MAX_EVENT_NAME}]},
        "timeout": or_interpolated(optional(DURATION)),
    }
    return object_schema(members, **one_of("for", "until", "event"), **if_present("timeout", {"required": ["event"]}))


def _branch() -> JsonSchema:
    return list_of(object_schema({"when": optional(EXPRESSION), "steps": STEPS}, ("steps",)), minItems=1)


def _parallel() -> JsonSchema:
    return {
        "type": "object", "minProperties": 1, "maxProperties": MAX_BRANCHES,
        "propertyNames": {"pattern": NAME["pattern"]}, "additionalProperties": STEPS,
    }  # fmt: skip


def _for_each() -> JsonSchema:
    items = {"type": ["array", "string"], "description": "A list, or an expression that gives one."}
    members = {"items": items, "as": NAME, "concurrency": optional(integer(1, 50)), "steps": STEPS, "collect": ANY}
    members |= {"on_error": {"enum": list(ON_ERROR)}}
    return object_schema(members, ("items", "steps"))


def kind_schemas() -> dict[str, JsonSchema]:
    """By kind; every kind of `nodes.KINDS` has one."""
    return {
        "rule": _rule(), "code": _code(), "integration": _integration(), "datapool": _datapool(), "human": _human(),
        "llm": _llm(), "agent": _agent(), "file": file_schema(), "ocr": ocr_schema(),
        "process": _process(), "wait": _wait(), "stop": object_schema({"output": ANY}), "branch": _branch(),
        "parallel": _parallel(), "for_each": _for_each(),
    }  # fmt: skip
