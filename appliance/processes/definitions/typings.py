"""Generates the TypeScript declarations of one process (api.d.ts) from its grants and schemas and what they refer to."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from appliance.connectors.contract import Action

from .dependencies import Dependencies, Fields
from .nodes import Definition, Grants, Step
from .schema_types import OPEN, RECEIVED, SENT, comment, literal, member_name, to_typescript, union
from .template import Expression, Template

API_FILE = "api.d.ts"
_HEADER = "// Generated from process.yaml and its grants; do not edit. Regenerate with `gos check --write-types`.\n"
_BASE = (Path(__file__).parent / "api.d.ts").read_text("utf8")
MAX_TYPED_ACTIONS = 100
"""With a grant of `*`, an integration with more actions than this is declared by their names only, without types."""
_ANY = "any"
_UNKNOWN_ACTION = "{ input: any; output: any }"
_RESERVED = "readonly id: string; readonly created_at: string; readonly updated_at: string; readonly _version: number;"
# The type of a field when read, and what else may be written to it.
_FIELD_TYPES = {
    "text": ("string", ""), "email": ("string", ""), "url": ("string", ""), "relation": ("string", ""), "date": ("string", ""),
    "datetime": ("string", ""), "autodate": ("string", ""), "boolean": ("boolean", ""), "number": ("number", ""),
    "integer": ("number", "string"), "decimal": ("string", "number"), "json": (_ANY, ""), "document": ("string", ""),
}  # fmt: skip


def declare_process(definition: Definition, dependencies: Dependencies) -> str:
    """The text of api.d.ts."""
    steps = list(code_steps(definition))
    whole = all_grants(definition)
    return "".join(
        [
            _HEADER,
            _integrations(whole, dependencies),
            _collections(whole, dependencies),
            f"type ProcessInput = {input_type(definition)};\n",
            f"type ProcessApi = GosApi<{_grant_set(whole)}>;\n",
            _interface("Steps", (f"{member_name(step.id)}: {_step(definition, step)};" for step in steps)),
            'type StepInput<Step extends keyof Steps = never> = [Step] extends [never] ? ProcessInput : Steps[Step]["input"];\n',
            'type Api<Step extends keyof Steps = never> = [Step] extends [never] ? ProcessApi : Steps[Step]["api"];\n\n',
            _BASE,
        ]
    )


def declare_expression_names(definition: Definition, dependencies: Dependencies) -> str:
    """Declarations for expressions, beside those of api.d.ts: unknown members of open values are not an error there."""
    shape = to_typescript(definition.input_schema, OPEN) if definition.input_schema is not None else _ANY
    outputs = " ".join(f"{member_name(step.id)}: {_output(step, dependencies)};" for step in definition.all_steps())
    errors = " ".join(f"{member_name(step.id)}: any;" for step in definition.all_steps() if step.keeps_errors)
    facts = "id: string; process_id: string; version: number; label: string | null; created_at: string; started_at: string;"
    return (
        f"type ExpressionInput = {shape};\ninterface ExpressionSteps {{ {outputs} }}\n"
        f"interface ExpressionErrors {{ {errors} }}\n"
        f"interface ExpressionExecution {{ {facts} }}\ninterface ExpressionTenant {{ id: string }}\n"
    )


def agents_used(definition: Definition) -> list[str]:
    """The agents that the steps run."""
    return sorted({step.settings["use"] for step in definition.all_steps() if step.kind == "agent" and step.settings.get("use")})


def _output(step: Step, dependencies: Dependencies) -> str:
    """The type of a successful step's output; that it is null for a skipped step is not expressed."""
    schema = dependencies.agents.get(step.settings.get("use", "")) if step.kind == "agent" else None
    if schema is None:
        return _ANY
    return to_typescript(schema, OPEN) if schema else "string"


def code_steps(definition: Definition) -> Iterator[Step]:
    """The TypeScript and JavaScript steps, which the type checker can check."""
    return (step for step in definition.all_steps() if step.kind == "code" and step.settings.get("language", "php") != "php")


def grants_of(definition: Definition, step: Step) -> Grants:
    return step.grants or definition.grants


def all_grants(definition: Definition) -> Grants:
    """The union of the grants of all code steps: what a shared module may use, whichever step imports it."""
    step_grants = [grants_of(definition, step) for step in code_steps(definition)] or [definition.grants]
    integrations: dict[str, frozenset[str]] = {}
    data: dict[str, frozenset[str]] = {}
    for each in step_grants:
        for slug, actions in each.integrations.items():
            integrations[slug] = integrations.get(slug, frozenset()) | actions
        for name, access in each.datapool.items():
            data[name] = data.get(name, frozenset()) | access
    return Grants(
        integrations, data,
        secrets=frozenset().union(*(each.secrets for each in step_grants)),
        processes=frozenset().union(*(each.processes for each in step_grants)),
        human=any(each.human for each in step_grants),
        llm=frozenset().union(*(each.llm for each in step_grants)),
        documents=frozenset().union(*(each.documents for each in step_grants)),
    )  # fmt: skip


def input_type(definition: Definition) -> str:
    """The type of the execution's input as code receives it."""
    return _ANY if definition.input_schema is None else to_typescript(definition.input_schema, RECEIVED)


def _interface(name: str, members: Iterable[str]) -> str:
    return f"interface {name} {{\n" + "".join(f"  {member}\n" for member in members) + "}\n"


# -- integrations


def _integrations(grants: Grants, dependencies: Dependencies) -> str:
    def members() -> Iterator[str]:
        for slug, names in sorted(grants.integrations.items()):
            actions = dependencies.integrations.get(slug)
            yield f"{member_name(slug)}: {_actions(actions, names)};"

    return _interface("Integrations", members())


def _actions(actions: Mapping[str, Action] | None, names: frozenset[str]) -> str:
    if actions is None and "*" in names:
        return f"{{ [action: string]: {_UNKNOWN_ACTION} }}"
    declared = actions or {}
    if "*" in names and len(declared) > MAX_TYPED_ACTIONS:
        return "{ " + " ".join(f"{member_name(name)}: {_UNKNOWN_ACTION};" for name in sorted(declared)) + " }"
    granted = sorted(declared) if "*" in names else sorted(names)
    return "{ " + " ".join(_action(name, declared.get(name)) for name in granted) + " }"


def _action(name: str, action: Action | None) -> str:
    if action is None:
        return f"{member_name(name)}: {_UNKNOWN_ACTION};"
    input_type_text, output_type_text = to_typescript(action.input, SENT), to_typescript(action.output, RECEIVED)
    return f"{comment(action.summary)}{member_name(name)}: {{ input: {input_type_text}; output: {output_type_text} }};"


def _grant_set(grants: Grants) -> str:
    """The type argument of GosApi: the granted names, with integrations as granted actions of the interface Integrations."""
    integrations = []
    for slug, names in sorted(grants.integrations.items()):
        whole = f"Integrations[{json.dumps(slug)}]"
        chosen = whole if "*" in names else f"Pick<{whole}, {union(json.dumps(name) for name in sorted(names))}>"
        integrations.append(f"{member_name(slug)}: {chosen};")
    groups = {access: [name for name in sorted(grants.datapool) if access in grants.datapool[name]] for access in ("read", "write")}
    groups |= {"secrets": sorted(grants.secrets), "processes": sorted(grants.processes), "llm": sorted(grants.llm)}
    listed = " ".join(f"{member}: {union(json.dumps(name) for name in names)};" for member, names in groups.items())
    return f"{{ integrations: {{ {' '.join(integrations)} }}; {listed} }}"


# -- collections


def _collections(grants: Grants, dependencies: Dependencies) -> str:
    names = [name for name in sorted(grants.datapool) if name in dependencies.collections]
    return _interface("Collections", (f"{member_name(name)}: {_collection(dependencies.collections[name])};" for name in names))


def _collection(fields: Fields) -> str:
    entity = " ".join(_field(each, read=True) for each in fields)
    values = " ".join(_field(each, read=False) for each in fields)
    relations = union(json.dumps(each["name"]) for each in fields if each["type"] == "relation")
    return f"{{ entity: {{ {_RESERVED} {entity} }}; values: {{ {values} }}; relations: {relations} }}"


def _field(field: Mapping[str, Any], *, read: bool) -> str:
    read_type, written_type = _FIELD_TYPES.get(field["type"], (_ANY, ""))
    if field["type"] == "select":
        read_type = union(literal(option) for option in field.get("options", ())) if field.get("options") else "string"
    required = bool(field.get("required"))
    kind = read_type if read or not written_type else f"{read_type} | {written_type}"
    optional = not read and not (required and field.get("default") is None)
    text = kind if required or read_type == _ANY else f"{kind} | null"
    return f"{comment(field.get('description'))}{member_name(field['name'])}{'?' if optional else ''}: {text};"


# -- steps


def _step(definition: Definition, step: Step) -> str:
    step_grants = grants_of(definition, step)
    api = "ProcessApi" if step_grants == all_grants(definition) else f"GosApi<{_grant_set(step_grants)}>"
    return f"{{ input: {_step_input(definition, step)}; api: {api} }}"


def _step_input(definition: Definition, step: Step) -> str:
    template = step.templates.get("step_input")
    return "ProcessInput" if template is None else _TemplateTypes(definition, template).type_of(template.value, ())


class _TemplateTypes:
    """The type of a template's value: paths into the input have the type from its schema, everything else is any."""

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
