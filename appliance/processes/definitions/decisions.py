"""Static checks of the decision of a rule step."""

from collections.abc import Iterator, Mapping
from typing import Any

from appliance.core import yaml12
from appliance.sandbox import Pool, names_read, unreachable_rules

from .compiled import load_decision
from .nodes import Definition, Problem, Severity, Step
from .template import Expression

# With one of these keywords a schema may allow more names, or fewer, than it lists in `properties`.
_OPEN_KEYWORDS = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "unevaluatedProperties")


def decision_problems(pool: Pool, definition: Definition, step: Step, files: Mapping[str, str]) -> list[Problem]:
    """Problems the engine would refuse, unreachable rules, and names that the input cannot have."""
    problems = _ProblemFactory(step, files)
    try:
        model = load_decision(step, files)
    except yaml12.YamlInvalid as error:
        return [Problem(problems.pointer, "decision_invalid", error.message, problems.file, error.line, error.column)]
    failures = pool.check_decision(model)
    if failures:
        return [problems.problem(failure.pointer, "decision_invalid", failure.message) for failure in failures]
    unreachable = [problems.problem(at, "rule_unreachable", message, "warning") for at, message in unreachable_rules(model)]
    return [*unreachable, *_unknown_names(problems, definition, names_read(model))]


class _ProblemFactory:
    """Creates problems located in a decision: by pointer for an inline one, by line for a file."""

    def __init__(self, step: Step, files: Mapping[str, str]) -> None:
        decision = step.settings["decision"]
        self.step = step
        self.file = decision if isinstance(decision, str) else None
        self.pointer = f"{step.pointer}/rule/decision"
        self._text = files[self.file] if self.file is not None else ""

    def problem(self, pointer: str, code: str, message: str, severity: Severity = "error") -> Problem:
        if self.file is None:
            return Problem(self.pointer + pointer, code, message, severity=severity)
        lines = yaml12.load_with_lines(self._text)[1]
        enclosing = pointer
        while enclosing and enclosing not in lines:
            enclosing = enclosing.rpartition("/")[0]
        located_message = f"{pointer}: {message}" if pointer else message
        return Problem(self.pointer, code, located_message, self.file, lines.get(enclosing), severity=severity)


def _unknown_names(problems: _ProblemFactory, definition: Definition, names: frozenset[str]) -> Iterator[Problem]:
    available, is_closed = _input_names(definition, problems.step)
    if available is None:
        return
    for name in sorted(names - available):
        message = f"the decision reads {name!r}, which its input does not {'have' if is_closed else 'name'}"
        listed = ", ".join(sorted(available)[:20]) or "none"
        full_message = f"{message}; known are {listed}" if is_closed else f"{message}; the decision fails if it is absent"
        yield problems.problem("", "name_unknown", full_message, "error" if is_closed else "warning")


def _input_names(definition: Definition, step: Step) -> tuple[frozenset[str] | None, bool]:
    """The names in the decision's input, None if they cannot be determined; and whether no others are possible."""
    template = step.templates.get("input") or step.templates.get("step_input")
    if template is None:
        return _schema_names(definition.input_schema, ())
    whole = next((parts for place, parts in template.slots if not place), None)
    if whole is None:
        return (frozenset(template.value), True) if isinstance(template.value, dict) else (None, False)
    expression = whole[0] if len(whole) == 1 else None
    if not isinstance(expression, Expression) or not expression.path or expression.path[0] != "input":
        return None, False
    return _schema_names(definition.input_schema, expression.path[1:])


def _schema_names(schema: Any, path: tuple[str | int, ...]) -> tuple[frozenset[str] | None, bool]:
    for part in path:
        if not isinstance(schema, Mapping) or any(word in schema for word in _OPEN_KEYWORDS):
            return None, False
        inner = schema.get("properties", {}) if isinstance(part, str) else schema.get("items")
        schema = inner.get(part) if isinstance(part, str) and isinstance(inner, Mapping) else inner
    if not isinstance(schema, Mapping) or any(word in schema for word in _OPEN_KEYWORDS):
        return None, False
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return None, False
    return frozenset(properties), schema.get("additionalProperties") is False
