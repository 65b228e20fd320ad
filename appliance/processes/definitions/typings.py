"""The TypeScript declarations of one process (api.d.ts): what its steps are given, by grants, schemas and surroundings."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from appliance.connectors.contract import Action

from .nodes import Definition, Grants, Step
from .schema_types import GIVEN, OPEN, RECEIVED, comment, literal, member_name, to_typescript, union
from .surroundings import Fields, Surroundings
from .template import Expression, Template

API_FILE = "api.d.ts"
_HEAD = "// Generated from process.yaml and what it is granted; do not edit: `gos check --write-types` writes it anew.\n"
_BASE = (Path(__file__).parent / "api.d.ts").read_text("utf8")
MOST_TYPED = 100
"""A grant of everything an integration can do has types up to this number of actions, beyond it their names only."""
_ANY = "any"
_UNKNOWN_ACTION = "{ input: any; output: any }"
_RESERVED = "readonly id: string; readonly created_at: string; readonly updated_at: string; readonly _version: number;"
# What a field holds, and what else may be written to it.
_FIELD_TYPES = {
    "text": ("string", ""), "email": ("string", ""), "url": ("string", ""), "relation": ("string", ""), "date": ("string", ""),
    "datetime": ("string", ""), "autodate": ("string", ""), "boolean": ("boolean", ""), "number": ("number", ""),
    "integer": ("number", "string"), "decimal": ("string", "number"), "json": (_ANY, ""), "document": ("string", ""),
}  # fmt: skip


def declare_process(definition: Definition, around: Surroundings) -> str:
    """The text of api.d.ts."""
    steps = list(code_steps(definition))
    whole = all_grants(definition)
    return "".join(
        [
            _HEAD,
            _integrations(whole, around),
            _collections(whole, around),
            f"type ProcessInput = {input_type(definition)};\n",
            f"type ProcessApi = GosApi<{_grant_set(whole)}>;\n",
            _interface("Steps", (f"{member_name(step.id)}: {_step(definition, step)};" for step in steps)),
            'type StepInput<Step extends keyof Steps = never> = [Step] extends [never] ? ProcessInput : Steps[Step]["input"];\n',
            'type Api<Step extends keyof Steps = never> = [Step] extends [never] ? ProcessApi : Steps[Step]["api"];\n\n',
            _BASE,
        ]
    )


def declare_expression_names(definition: Definition, around: Surroundings) -> str:
    """What expressions see, besides the declarations: unknown members of values that are not closed are no error there."""
    shape = to_typescript(definition.input_schema, OPEN) if definition.input_schema is not None else _ANY
    outputs = " ".join(f"{member_name(step.id)}: {_output(step, around)};" for step in definition.all_steps())
    errors = " ".join(f"{member_name(step.id)}: any;" for step in definition.all_steps() if step.keeps_errors)
    facts = "id: string; process_id: string; version: number; label: string | null; created_at: string; started_at: string;"
    return (
        f"type ExpressionInput = {shape};\ninterface ExpressionSteps {{ {outputs} }}\n"
        f"interface ExpressionErrors {{ {errors} }}\n"
        f"interface ExpressionExecution {{ {facts} }}\ninterface ExpressionTenant {{ id: string }}\n"
    )


def agents_used(definition: Definition) -> list[str]:
    """The agents whose runs its steps start."""
    return sorted({step.settings["use"] for step in definition.all_steps() if step.kind == "agent" and step.settings.get("use")})


def _output(step: Step, around: Surroundings) -> str:
    """What is behind a step that ended well; that another may be null is for its author to know."""
    schema = around.agents.get(step.settings.get("use", "")) if step.kind == "agent" else None
    if schema is None:
        return _ANY
    return to_typescript(schema, OPEN) if schema else "string"


def code_steps(definition: Definition) -> Iterator[Step]:
    """The steps that the type checker can look into."""
    return (step for step in definition.all_steps() if step.kind == "code" and step.settings.get("language", "php") != "php")


def grants_of(definition: Definition, step: Step) -> Grants:
    return step.grants or definition.grants


def all_grants(definition: Definition) -> Grants:
    """Everything that any code of the process may reach: what a module does not know whose step it is a part of."""
    found = [grants_of(definition, step) for step in code_steps(definition)] or [definition.grants]
    integrations: dict[str, frozenset[str]] = {}
    data: dict[str, frozenset[str]] = {}
    for each in found:
        for slug, actions in each.integrations.items():
            integrations[slug] = integrations.get(slug, frozenset()) | actions
        for name, access in each.datapool.items():
            data[name] = data.get(name, frozenset()) | access
    return Grants(
        integrations, data,
        secrets=frozenset().union(*(each.secrets for each in found)),
        processes=frozenset().union(*(each.processes for each in found)),
        human=any(each.human for each in found),
        llm=frozenset().union(*(each.llm for each in found)),
        documents=frozenset().union(*(each.documents for each in found)),
    )  # fmt: skip


def input_type(definition: Definition) -> str:
    """The type of the execution's input as code receives it."""
    return _ANY if definition.input_schema is None else to_typescript(definition.input_schema, RECEIVED)


def _interface(name: str, members: Iterable[str]) -> str:
    return f"interface {name} {{\n" + "".join(f"  {member}\n" for member in members) + "}\n"


# -- integrations


def _integrations(grants: Grants, around: Surroundings) -> str:
    def members() -> Iterator[str]:
        for slug, names in sorted(grants.integrations.items()):
            actions = around.integrations.get(slug)
            yield f"{member_name(slug)}: {_actions(actions, names)};"

    return _interface("Integrations", members())


def _actions(actions: Mapping[str, Action] | None, names: frozenset[str]) -> str:
    if actions is None and "*" in names:
        return f"{{ [action: string]: {_UNKNOWN_ACTION} }}"
    known = actions or {}
    if "*" in names and len(known) > MOST_TYPED:
        return "{ " + " ".join(f"{member_name(name)}: {_UNKNOWN_ACTION};" for name in sorted(known)) + " }"
    granted = sorted(known) if "*" in names else sorted(names)
    return "{ " + " ".join(_action(name, known.get(name)) for name in granted) + " }"


def _action(name: str, action: Action | None) -> str:
    if action is None:
        return f"{member_name(name)}: {_UNKNOWN_ACTION};"
    given, answered = to_typescript(action.input, GIVEN), to_typescript(action.output, RECEIVED)
    return f"{comment(action.summary)}{member_name(name)}: {{ input: {given}; output: {answered} }};"


def _grant_set(grants: Grants) -> str:
    """The names a GosApi is made for; integrations are the granted actions of the interface Integrations."""
    integrations = []
    for slug, names in sorted(grants.integrations.items()):
        whole = f"Integrations[{json.dumps(slug)}]"
        chosen = whole if "*" in names else f"Pick<{whole}, {union(json.dumps(name) for name in sorted(names))}>"
        integrations.append(f"{member_name(slug)}: {chosen};")
    named = {access: [name for name in sorted(grants.datapool) if access in grants.datapool[name]] for access in ("read", "write")}
    named |= {"secrets": sorted(grants.secrets), "processes": sorted(grants.processes), "llm": sorted(grants.llm)}
    listed = " ".join(f"{member}: {union(json.dumps(name) for name in found)};" for member, found in named.items())
    return f"{{ integrations: {{ {' '.join(integrations)} }}; {listed} }}"


# -- collections


def _collections(grants: Grants, around: Surroundings) -> str:
    names = [name for name in sorted(grants.datapool) if name in around.collections]
    return _interface("Collections", (f"{member_name(name)}: {_collection(around.collections[name])};" for name in names))


def _collection(fields: Fields) -> str:
    entity = " ".join(_field(each, read=True) for each in fields)
    values = " ".join(_field(each, read=False) for each in fields)
    relations = union(json.dumps(each["name"]) for each in fields if each["type"] == "relation")
    return f"{{ entity: {{ {_RESERVED} {entity} }}; values: {{ {values} }}; relations: {relations} }}"


def _field(shown: Mapping[str, Any], *, read: bool) -> str:
    held, also = _FIELD_TYPES.get(shown["type"], (_ANY, ""))
    if shown["type"] == "select":
        held = union(literal(option) for option in shown.get("options", ())) if shown.get("options") else "string"
    required = bool(shown.get("required"))
    kind = held if read or not also else f"{held} | {also}"
    optional = not read and not (required and shown.get("default") is None)
    text = kind if required or held == _ANY else f"{kind} | null"
    return f"{comment(shown.get('description'))}{member_name(shown['name'])}{'?' if optional else ''}: {text};"


# -- steps


def _step(definition: Definition, step: Step) -> str:
    own = grants_of(definition, step)
    api = "ProcessApi" if own == all_grants(definition) else f"GosApi<{_grant_set(own)}>"
    return f"{{ input: {_step_input(definition, step)}; api: {api} }}"


def _step_input(definition: Definition, step: Step) -> str:
    template = step.templates.get("step_input")
    return "ProcessInput" if template is None else _TemplateTypes(definition, template).type_of(template.value, ())


class _TemplateTypes:
    """The type of a value with expressions in it: paths into the input have the type of its schema, all else is any."""

    def __init__(self, definition: Definition, template: Template) -> None:
        self._schema = definition.input_schema
        self._slots = dict(template.slots)

    def type_of(self, value: Any, place: tuple[str | int, ...]) -> str:
        parts = self._slots.get(place)
        if parts is not None:
            return self._expression(parts[0]) if len(parts) == 1 and isinstance(parts[0], Expression) else "string"
        if isinstance(value, dict):
            members = (f"{member_name(name)}: {self.type_of(each, (*place, name))};" for name, each in value.items())
            return "{ " + " ".join(members) + " }"
        if isinstance(value, list):
            return f"({union(self.type_of(each, (*place, index)) for index, each in enumerate(value))})[]" if value else "any[]"
        if value is None:
            return "null"
        return {bool: "boolean", str: "string"}.get(type(value), "number")

    def _expression(self, expression: Expression) -> str:
        path = expression.path
        if not path or path[0] != "input" or self._schema is None:
            return _ANY
        schema: Any = self._schema
        for part in path[1:]:
            if not isinstance(schema, Mapping):
                return _ANY
            inner = schema.get("properties", {}) if isinstance(part, str) else schema.get("items")
            schema = inner.get(part) if isinstance(part, str) and isinstance(inner, Mapping) else inner
        return to_typescript(schema, RECEIVED, root=self._schema) if isinstance(schema, Mapping) else _ANY
