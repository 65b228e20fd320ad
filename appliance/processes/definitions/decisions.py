"""What is wrong with the decision of a rule step, as far as it can be told without an execution."""

from collections.abc import Iterator, Mapping
from typing import Any

from appliance.core import yaml12
from appliance.sandbox import Pool, names_read, unreachable_rules

from .compiled import load_decision
from .nodes import Definition, Problem, Severity, Step
from .template import Expression

# With one of these a schema may allow more names, or fewer, than its `properties` say.
_OPEN_WORDS = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "unevaluatedProperties")


def decision_problems(pool: Pool, definition: Definition, step: Step, files: Mapping[str, str]) -> list[Problem]:
    """What the engine would refuse, rules that are never reached, and names that the input cannot have."""
    finder = _Finder(step, files)
    try:
        model = load_decision(step, files)
    except yaml12.YamlInvalid as error:
        return [Problem(finder.pointer, "decision_invalid", error.message, finder.file, error.line, error.column)]
    refused = pool.check_decision(model)
    if refused:
        return [finder.problem(found.pointer, "decision_invalid", found.message) for found in refused]
    hidden = [finder.problem(at, "rule_unreachable", message, "warning") for at, message in unreachable_rules(model)]
    return [*hidden, *_unknown_names(finder, definition, names_read(model))]


class _Finder:
    """Names places in a decision: by pointer where it stands in the definition, by line where it is a file."""

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
        at = pointer
        while at and at not in lines:
            at = at.rpartition("/")[0]
        told = f"{pointer}: {message}" if pointer else message
        return Problem(self.pointer, code, told, self.file, lines.get(at), severity=severity)


def _unknown_names(finder: _Finder, definition: Definition, names: frozenset[str]) -> Iterator[Problem]:
    known, closed = _names_given(definition, finder.step)
    if known is None:
        return
    for name in sorted(names - known):
        told = f"the decision reads {name!r}, which its input does not {'have' if closed else 'name'}"
        listed = ", ".join(sorted(known)[:20]) or "none"
        more = f"{told}; known are {listed}" if closed else f"{told}; it fails when that is absent"
        yield finder.problem("", "name_unknown", more, "error" if closed else "warning")


def _names_given(definition: Definition, step: Step) -> tuple[frozenset[str] | None, bool]:
    """The names of the decision's input, None where that cannot be told; and whether there are surely no others."""
    template = step.templates.get("input") or step.templates.get("step_input")
    if template is None:
        return _names_of(definition.input_schema, ())
    whole = next((parts for place, parts in template.slots if not place), None)
    if whole is None:
        return (frozenset(template.value), True) if isinstance(template.value, dict) else (None, False)
    expression = whole[0] if len(whole) == 1 else None
    if not isinstance(expression, Expression) or not expression.path or expression.path[0] != "input":
        return None, False
    return _names_of(definition.input_schema, expression.path[1:])


def _names_of(schema: Any, path: tuple[str | int, ...]) -> tuple[frozenset[str] | None, bool]:
    for part in path:
        if not isinstance(schema, Mapping) or any(word in schema for word in _OPEN_WORDS):
            return None, False
        inner = schema.get("properties", {}) if isinstance(part, str) else schema.get("items")
        schema = inner.get(part) if isinstance(part, str) and isinstance(inner, Mapping) else inner
    if not isinstance(schema, Mapping) or any(word in schema for word in _OPEN_WORDS):
        return None, False
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return None, False
    return frozenset(properties), schema.get("additionalProperties") is False
