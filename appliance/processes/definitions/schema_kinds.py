"""The JSON Schema of each step kind's own member, for editors."""

from appliance.governance.approvals import CHOICE, MOST_APPROVERS, MOST_CHOICES
from appliance.governance.approvals import KINDS as HUMAN_KINDS
from appliance.llm import MOST_FILES, MOST_MESSAGES, MOST_REPAIRS
from appliance.llm import ROLES as ROLES_OF_MESSAGES
from appliance.processes.files.members import file_schema, ocr_schema
from appliance.tenants import ROLES

from .kinds import LANGUAGES, ON_TIMEOUT, OPERATIONS
from .nodes import MAX_EVENT_NAME, MOST_BRANCHES
from .options import ON_ERROR
from .schema_parts import (
    ANY,
    DURATION,
    EXPRESSION,
    FILLED,
    FLAG,
    NAME,
    SLUG,
    STEPS,
    TEXT,
    Shape,
    excluding,
    listed,
    one_of,
    optional,
    or_expression,
    or_filled,
    shape,
    when_there,
    whole,
)


def _rule() -> Shape:
    decision = {"type": ["string", "object"], "description": "A file such as rules/price.json, or a JSON Decision Model."}
    members = {"expression": EXPRESSION, "decision": decision, "input": ANY}
    return shape(members, **one_of("expression", "decision"), **when_there("expression", excluding("input")))


def _code() -> Shape:
    members = {"language": {"enum": list(LANGUAGES)}, "file": TEXT, "source": TEXT}
    return shape(members, ("language",), **one_of("file", "source"))


def _integration() -> Shape:
    return shape({"use": TEXT, "action": TEXT, "input": ANY}, ("use", "action"))


def _datapool() -> Shape:
    members: Shape = {"collection": TEXT}
    for name, required in OPERATIONS.items():
        if required:
            members[name] = or_expression(shape(dict.fromkeys(required, ANY), required))
        else:
            members[name] = or_expression({"type": ["object", "array"] if name == "batch" else "object"})
    of_batch: Shape = {"if": {"required": ["batch"]}, "then": excluding("collection"), "else": {"required": ["collection"]}}
    return shape(members, **one_of(*OPERATIONS), **of_batch)


def _human() -> Shape:
    approver = {"type": "string", "pattern": rf"^(role:({'|'.join(ROLES)})|user:.{{1,254}})$"}
    members = {
        "kind": {"enum": list(HUMAN_KINDS)},
        "title": TEXT,
        "reason": {"type": ["string", "null"]},
        "details": ANY,
        "schema": or_filled({"type": ["object", "null"], "description": "JSON Schema of the answer to an input."}),
        "choices": or_filled(
            {**listed({"type": "string", "maxLength": CHOICE}, minItems=1, maxItems=MOST_CHOICES), "type": ["array", "null"]}
        ),
        "approvers": or_filled(
            {**listed({"anyOf": [FILLED, approver]}, maxItems=MOST_APPROVERS), "type": ["array", "null"]}
            | {"examples": [["role:operator", "user:ann"]]}
        ),
        "expires": or_filled(optional(DURATION)),
        "on_timeout": {"enum": list(ON_TIMEOUT)},
    }
    choice = {"properties": {"kind": {"const": "choice"}}, "required": ["kind"]}
    return shape(
        members,
        ("kind", "title"),
        **{"if": choice, "then": {"required": ["choices"], "properties": {"choices": {"type": ["array", "string"]}}}},
    )


def _llm() -> Shape:
    message = shape({"role": or_filled({"enum": list(ROLES_OF_MESSAGES)}), "content": TEXT}, ("role", "content"))
    files = or_filled(optional(listed({"type": "string", "minLength": 1}, maxItems=MOST_FILES)))
    members = {
        "profile": SLUG,
        "prompt": TEXT,
        "messages": or_filled(listed(or_filled(message), minItems=1, maxItems=MOST_MESSAGES)),
        "system": optional(TEXT),
        "input": {**ANY, "description": "Data for the model, appended to the prompt as JSON."},
        "output": {"type": "object", "description": "JSON Schema of the answer; without it the answer is a text."},
        "documents": files,
        "images": files,
        "max_tokens": or_filled(optional(whole(1, 1_000_000))),
        "temperature": or_filled({"type": ["number", "null"], "minimum": 0, "maximum": 2}),
        "repair": optional(whole(0, MOST_REPAIRS)),
        "restore": optional(FLAG),
    }
    return shape(members, ("profile",), **one_of("prompt", "messages"))


def _process() -> Shape:
    return shape({"use": SLUG, "input": or_expression({"type": "object"}), "wait": FLAG}, ("use",))


def _agent() -> Shape:
    description = "What the run should do: a text, or an object that is passed to it as JSON."
    run_input = {"type": ["object", "string"], "minLength": 1, "description": description}
    trusted = {**FLAG, "description": "Nothing in the input comes from outside: the run does not start tainted."}
    timeout = {**optional(DURATION), "description": "How long the step waits at most for the run to finish."}
    return shape({"use": SLUG, "input": run_input, "trusted": trusted, "timeout": timeout}, ("use",))


def _wait() -> Shape:
    members = {
        "for": or_filled(DURATION),
        "until": {"type": "string", "description": "An RFC 3339 time, or an expression."},
        "event": {"anyOf": [FILLED, {**TEXT, "maxLength": MAX_EVENT_NAME}]},
        "timeout": or_filled(optional(DURATION)),
    }
    return shape(members, **one_of("for", "until", "event"), **when_there("timeout", {"required": ["event"]}))


def _branch() -> Shape:
    return listed(shape({"when": optional(EXPRESSION), "steps": STEPS}, ("steps",)), minItems=1)


def _parallel() -> Shape:
    return {
        "type": "object", "minProperties": 1, "maxProperties": MOST_BRANCHES,
        "propertyNames": {"pattern": NAME["pattern"]}, "additionalProperties": STEPS,
    }  # fmt: skip


def _for_each() -> Shape:
    items = {"type": ["array", "string"], "description": "A list, or an expression that gives one."}
    members = {"items": items, "as": NAME, "concurrency": optional(whole(1, 50)), "steps": STEPS, "collect": ANY}
    members |= {"on_error": {"enum": list(ON_ERROR)}}
    return shape(members, ("items", "steps"))


def kind_schemas() -> dict[str, Shape]:
    """By kind; every kind of `nodes.KINDS` has one."""
    return {
        "rule": _rule(), "code": _code(), "integration": _integration(), "datapool": _datapool(), "human": _human(),
        "llm": _llm(), "agent": _agent(), "file": file_schema(), "ocr": ocr_schema(),
        "process": _process(), "wait": _wait(), "stop": shape({"output": ANY}), "branch": _branch(), "parallel": _parallel(),
        "for_each": _for_each(),
    }  # fmt: skip
