"""JSON Schema of agent definitions, for completion in editors; `definition.parse_definition` is authoritative."""

from dataclasses import asdict

from appliance.processes.definitions import DURATION, SLUG, TEXT, Shape, listed, optional, shape, whole

from .definition import MOST_BUDGET, MOST_COST, MOST_NAMES, MOST_TEXT, OPERATION, TOOLS, UNLISTED, Budget


def agent_schema() -> Shape:
    """The schema of an agent's file; only `instructions` is required, and `id` defaults to the file's name."""
    slugs = _names(SLUG)
    members: Shape = {
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
    return shape(members, ("instructions",))


def _names(name: Shape) -> Shape:
    return listed(name, maxItems=MOST_NAMES, uniqueItems=True)


def _tool() -> Shape:
    slug = SLUG["pattern"].removesuffix("$")
    operation = {"type": "string", "pattern": rf"{slug}:(\*|{OPERATION})$", "examples": ["erp:get_order", "crm:*"]}
    return {"anyOf": [{"enum": [name for name in TOOLS if name not in UNLISTED]}, operation]}


def _budget() -> Shape:
    seconds = {"anyOf": [whole(1, MOST_BUDGET["seconds"]), DURATION], "description": "Active time; waiting does not count."}
    cost = {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_COST, "description": "In the currency of the model's prices."}
    members: Shape = {name: whole(1, most) for name, most in MOST_BUDGET.items()} | {"seconds": seconds, "cost": cost}
    usual = asdict(Budget())
    return shape({name: {**members[name], "default": usual[name]} for name in usual})
