"""The JSON Schema of `triggers`, for editors; the parser has the final say."""

from appliance.processes.definitions.schema_parts import (
    DURATION,
    EXPRESSION,
    SLUG,
    TEXT,
    JsonSchema,
    integer,
    list_of,
    object_schema,
    one_of,
    optional,
    without,
)

from .kinds import DATA_EVENTS, ENDS, MAX_PATH, MOST_MISSED, MOST_TRIGGERS, ON_MISSED, PARSERS, PATH, PRESETS, SIGNED

_ID: JsonSchema = {"type": "string", "pattern": "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"}
_INPUT: JsonSchema = {
    "anyOf": [EXPRESSION, {"type": ["object", "null"]}],
    "description": "The execution's input, built from `trigger` (the event); by default the event itself, for a schedule {}.",
}
_EVENTS: JsonSchema = list_of({"enum": list(DATA_EVENTS)}, minItems=1)
_FILTER: JsonSchema = {"type": ["object", "null"], "description": "Conditions on the changed entity or document, as in a query."}
_SECRET: JsonSchema = {"type": "string", "pattern": r"^=\s*secrets\.[A-Za-z_][A-Za-z0-9_]{0,62}\s*$"}
_HEADER: JsonSchema = {"type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"}


def triggers_schema() -> JsonSchema:
    """The schema of the list of triggers, each an object with exactly one kind."""
    kinds = {kind: each for kind, each in _kinds().items() if kind in PARSERS}
    return list_of(object_schema({"id": _ID, **kinds}, **one_of(*kinds)), maxItems=MOST_TRIGGERS)


def _kinds() -> dict[str, JsonSchema]:
    data = {"events": _EVENTS, "filter": _FILTER, "input": _INPUT}
    ends = {"id": {"anyOf": [SLUG, list_of(SLUG, minItems=1)]}, "on": list_of({"enum": list(ENDS)}, minItems=1), "input": _INPUT}
    polled = {"use": SLUG, "trigger": TEXT, "every": optional(DURATION), "query": {"type": "object"}, "input": _INPUT}
    path = {"type": "string", "pattern": f"^{PATH}$", "maxLength": MAX_PATH}
    return {
        "schedule": _schedule(),
        "webhook": object_schema({"path": path, "verify": _verify(), "input": _INPUT}, ("path", "verify")),
        "integration": object_schema(polled, ("use", "trigger")),
        "datapool": object_schema({"collection": TEXT, **data}, ("collection",)),
        "process": object_schema(ends, ("id",)),
        "document": object_schema(data),
    }


def _schedule() -> JsonSchema:
    members = {
        "cron": {**TEXT, "examples": ["0 6 * * 1-5"]},
        "timezone": {**TEXT, "default": "UTC", "examples": ["Europe/Berlin"]},
        "on_missed": {"enum": list(ON_MISSED), "default": "run_once"},
        "max_missed": optional(integer(1, MOST_MISSED)),
        "input": _INPUT,
    }
    all_missed = {"required": ["on_missed"], "properties": {"on_missed": {"const": "run_all"}}}
    return object_schema(members, ("cron",), **{"if": {"not": all_missed}, "then": without("max_missed")})


def _verify() -> JsonSchema:
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
    belong = {"if": fresh, "then": {"required": ["timestamp_header"]}, "else": without("timestamp_header")}
    header = {"kind": {"const": "header"}, "secret": _SECRET, "header": _HEADER, "delivery_header": _HEADER}
    presets = {"kind": {"enum": ["standard-webhooks", *PRESETS]}, "secret": _SECRET}
    return {
        "oneOf": [
            object_schema(presets, ("kind", "secret")),
            object_schema(hmac, ("kind", "secret", "header"), **belong),
            object_schema(header, ("kind", "secret", "header")),
            object_schema({"kind": {"const": "none"}, "delivery_header": _HEADER}, ("kind",)),
        ]
    }
