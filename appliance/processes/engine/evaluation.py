"""Fills in templates: plain paths are resolved here, all other expressions together in one sandbox call."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from appliance.core.sentences import Sentence
from appliance.processes.definitions.template import Expression, Template, resolve_path
from appliance.sandbox import Pool

from .failures import failed_validation, from_sandbox

_STEP_MENTION = re.compile(r"\bsteps\b(?:\s*\.\s*([A-Za-z_$][\w$]*))?", re.ASCII)


def evaluate(pool: Pool, expressions: Iterable[Expression], names: Mapping[str, Any], now: int) -> dict[Expression, Any]:
    """The value of every expression; StepFailed (validation) for the first one that fails or has no JSON value."""
    values: dict[Expression, Any] = {}
    pending: dict[str, Expression] = {}
    for expression in expressions:
        is_resolved, value = resolve_path(expression.path, names) if expression.path else (False, None)
        if is_resolved:
            values[expression] = value
        else:
            pending[f"e{len(pending)}"] = expression
    if not pending:
        return values
    texts = {key: expression.text for key, expression in pending.items()}
    namespace = str(names.get("tenant", {}).get("id", ""))
    answers = pool.evaluate(texts, _mentioned_names(names, list(texts.values())), now=now, namespace=namespace)
    for key, expression in pending.items():
        failure = answers[key].failure
        if failure is not None and failure.failure_class == "system":
            raise from_sandbox(failure)
        if failure is not None:
            column = f", column {failure.position.column}" if failure.position else ""
            raise failed_validation(
                Sentence("`= %(text)s`%(column)s: %(message)s", text=expression.text[:200], column=column, message=failure.message),
                expression.pointer,
            )
        values[expression] = answers[key].value
    return values


def _mentioned_names(names: Mapping[str, Any], texts: list[str]) -> Mapping[str, Any]:
    """`names` reduced to the step outputs that the texts mention, if that can be determined."""
    mentioned: set[str] = set()
    for text in texts:
        for match in _STEP_MENTION.finditer(text):
            if match[1] is None:
                return names
            mentioned.add(match[1])
    steps = names.get("steps", {})
    return {**names, "steps": {name: steps[name] for name in mentioned if name in steps}}


def fill(pool: Pool, templates: Mapping[str, Template], names: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Every template with its expressions replaced by their values."""
    expressions = [expression for template in templates.values() for expression in template.expressions]
    values = evaluate(pool, expressions, names, now) if expressions else {}
    return {name: template.fill(values) for name, template in templates.items()}


def is_true(value: Any) -> bool:
    """Whether a JSON value is truthy in JavaScript: empty lists and objects are."""
    return value is not None and value is not False and value != "" and not (_is_number(value) and value == 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
