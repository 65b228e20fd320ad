"""JSON Schema of agent definitions, for completion in editors; `definition.parse_definition` is authoritative."""

from dataclasses import asdict

from appliance.processes.definitions import DURATION, SLUG, TEXT, JsonSchema, integer, list_of, object_schema, optional

from .definition import MOST_BUDGET, MOST_COST, MOST_NAMES, MOST_TEXT, OPERATION, TOOLS, UNLISTED, Budget


def agent_schema() -> JsonSchema:
    """The schema of an agent's file; only `instructions` is required, and `id` defaults to the file's name."""
    slugs = _names(SLUG)
    members: JsonSchema = {
        "id": {**SLUG, "description": "The name of the file."},
        "name": {"type": "string", "maxLength": MOST_TEXT["name"]},
        "description": {"type": "string", "maxLength": MOST_TEXT["description"]},
        "model": {**SLUG, "default": "default", "description": "An LLM profile of the tenant."},
        "instructions": {**TEXT, "maxLength": MOST_TEXT["instructions"]},
        "tools": {**optional(_names(_tool())), "description": "Tools it may call; policies still apply to every call."},
        "skills": {**optional(slugs), "description": "Skills it may load."},
        "policy": {"anyOf": [SLUG, slugs, {"type": "null"}], "description": "Policies that must be active while it runs."},
        "budget": {**optional(_budget()), "description": "The limits of one run."},
        "output": {
            "anyOf": [{"type": "object", "required": ["type"], "properties": {"type": {"const": "object"}}}, {"type": "null"}],
            "description": "JSON Schema of its answer; without one it answers with text.",
        },
    }
    return object_schema(members, ("instructions",))


def _names(name: JsonSchema) -> JsonSchema:
    return list_of(name, maxItems=MOST_NAMES, uniqueItems=True)


def _tool() -> JsonSchema:
    slug = SLUG["pattern"].removesuffix("$")
    operation = {"type": "string", "pattern": rf"{slug}:(\*|{OPERATION})$", "examples": ["erp:get_order", "crm:*"]}
    return {"anyOf": [{"enum": [name for name in TOOLS if name not in UNLISTED]}, operation]}


def _budget() -> JsonSchema:
    seconds = {"anyOf": [integer(1, MOST_BUDGET["seconds"]), DURATION], "description": "Active time; waiting does not count."}
    cost = {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_COST, "description": "In the currency of the model's prices."}
    members: JsonSchema = {name: integer(1, most) for name, most in MOST_BUDGET.items()} | {"seconds": seconds, "cost": cost}
    usual = asdict(Budget())
    return object_schema({name: {**members[name], "default": usual[name]} for name in usual})
