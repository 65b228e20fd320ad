"""The JSON Schema of `triggers`, for editors; the parser has the final say."""

from appliance.processes.definitions.schema_parts import (
    DURATION,
    EXPRESSION,
    SLUG,
    TEXT,
    Shape,
    excluding,
    listed,
    one_of,
    optional,
    shape,
    whole,
)

from .kinds import DATA_EVENTS, ENDS, MAX_PATH, MOST_MISSED, MOST_TRIGGERS, ON_MISSED, PATH, PRESETS, READERS, SIGNED

_ID: Shape = {"type": "string", "pattern": "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"}
_INPUT: Shape = {
    "anyOf": [EXPRESSION, {"type": ["object", "null"]}],
    "description": "The execution's input, built from `trigger` (the event); by default the event itself, for a schedule {}.",
}
_EVENTS: Shape = listed({"enum": list(DATA_EVENTS)}, minItems=1)
_FILTER: Shape = {"type": ["object", "null"], "description": "Conditions on the changed entity or document, as in a query."}
_SECRET: Shape = {"type": "string", "pattern": r"^=\s*secrets\.[A-Za-z_][A-Za-z0-9_]{0,62}\s*$"}
_HEADER: Shape = {"type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"}


def triggers_schema() -> Shape:
    """The schema of the list of triggers, each an object with exactly one kind."""
    kinds = {kind: each for kind, each in _kinds().items() if kind in READERS}
    return listed(shape({"id": _ID, **kinds}, **one_of(*kinds)), maxItems=MOST_TRIGGERS)


def _kinds() -> dict[str, Shape]:
    data = {"events": _EVENTS, "filter": _FILTER, "input": _INPUT}
    ends = {"id": {"anyOf": [SLUG, listed(SLUG, minItems=1)]}, "on": listed({"enum": list(ENDS)}, minItems=1), "input": _INPUT}
    polled = {"use": SLUG, "trigger": TEXT, "every": optional(DURATION), "query": {"type": "object"}, "input": _INPUT}
    path = {"type": "string", "pattern": f"^{PATH}$", "maxLength": MAX_PATH}
    return {
        "schedule": _schedule(),
        "webhook": shape({"path": path, "verify": _verify(), "input": _INPUT}, ("path", "verify")),
        "integration": shape(polled, ("use", "trigger")),
        "datapool": shape({"collection": TEXT, **data}, ("collection",)),
        "process": shape(ends, ("id",)),
        "document": shape(data),
    }


def _schedule() -> Shape:
    members = {
        "cron": {**TEXT, "examples": ["0 6 * * 1-5"]},
        "timezone": {**TEXT, "default": "UTC", "examples": ["Europe/Berlin"]},
        "on_missed": {"enum": list(ON_MISSED), "default": "run_once"},
        "max_missed": optional(whole(1, MOST_MISSED)),
        "input": _INPUT,
    }
    all_missed = {"required": ["on_missed"], "properties": {"on_missed": {"const": "run_all"}}}
    return shape(members, ("cron",), **{"if": {"not": all_missed}, "then": excluding("max_missed")})


def _verify() -> Shape:
    hmac = {
        "kind": {"const": "hmac"},
        "secret": _SECRET,
        "header": _HEADER,
        "algorithm": {"enum": ["sha256", "sha512", "sha1"], "default": "sha256"},
        "encoding": {"enum": ["hex", "base64"], "default": "hex"},
        "prefix": {"type": "string", "default": ""},
        "signed": {"enum": list(SIGNED), "default": "body"},
        "timestamp_header": _HEADER,
        "delivery_header": _HEADER,
    }
    fresh = {"required": ["signed"], "properties": {"signed": {"const": SIGNED[1]}}}
    belong = {"if": fresh, "then": {"required": ["timestamp_header"]}, "else": excluding("timestamp_header")}
    header = {"kind": {"const": "header"}, "secret": _SECRET, "header": _HEADER, "delivery_header": _HEADER}
    presets = {"kind": {"enum": ["standard-webhooks", *PRESETS]}, "secret": _SECRET}
    return {
        "oneOf": [
            shape(presets, ("kind", "secret")),
            shape(hmac, ("kind", "secret", "header"), **belong),
            shape(header, ("kind", "secret", "header")),
            shape({"kind": {"const": "none"}, "delivery_header": _HEADER}, ("kind",)),
        ]
    }
