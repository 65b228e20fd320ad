"""Checks the literal input of `integration` steps against the action's schema, so that errors show before a call is approved."""

from collections.abc import Iterator, Mapping
from typing import Any

from appliance.connectors.contract import Action
from appliance.core.errors import Detail
from appliance.core.json_schema import compile_schema, pointer_token

from .dependencies import Actions, Dependencies
from .nodes import Definition, Problem, Step
from .template import Template

_MAX_LISTED = 20
# With these keywords, what is required may depend on a value that is known only at run time.
_CONDITIONS = ("if", "dependentSchemas")


def integrations_used(definition: Definition) -> list[str]:
    """The integrations whose actions the steps call."""
    return sorted({step.settings["use"] for step in _integration_steps(definition)})


def action_problems(definition: Definition, dependencies: Dependencies) -> list[Problem]:
    """A problem for every action that its integration does not have, and for every literal that the action does not accept.

    Values of expressions are checked at run time.  Integrations whose actions are unknown are skipped.
    """
    return [
        problem
        for step in _integration_steps(definition)
        if (actions := dependencies.integrations.get(step.settings["use"])) is not None
        for problem in _problems_of(step, actions)
    ]


def _integration_steps(definition: Definition) -> Iterator[Step]:
    steps = (step for step in definition.all_steps() if step.kind == "integration")
    return (step for step in steps if step.settings.get("use") and step.settings.get("action"))


def _problems_of(step: Step, actions: Actions) -> Iterator[Problem]:
    name, slug = step.settings["action"], step.settings["use"]
    action = actions.get(name)
    if action is None:
        available = ", ".join(sorted(actions)) if len(actions) <= _MAX_LISTED else f"{len(actions)} others"
        message = f"{slug} has no action {name[:80]!r}; it has {available or 'none'}"
        yield Problem(f"{step.pointer}/integration/action", "action_unknown", message)
        return
    template = step.templates.get("input") or step.templates.get("step_input")
    if template is None:
        return
    for detail in _literal_problems(action, template):
        message = f"the input does not match {name} of {slug}; {detail.pointer or '/'}: {detail.message}"
        yield Problem(template.pointer + detail.pointer, "input_invalid", message)


def _literal_problems(action: Action, template: Template) -> Iterator[Detail]:
    """The problems that no value of an expression can resolve."""
    expression_places = {"".join(f"/{pointer_token(part)}" for part in place) for place, _ in template.slots}
    if "" in expression_places or (expression_places and _uses_keyword(action.input, _CONDITIONS)):
        return
    for detail in compile_schema(action.input).problems(template.value):
        if not any(_is_open(detail, place) for place in expression_places):
            yield detail


def _is_open(detail: Detail, place: str) -> bool:
    """Whether the value of the expression at `place` may resolve the problem."""
    if f"{detail.pointer}/".startswith(f"{place}/"):
        return detail.code != "additionalProperties"
    # A list or an object of the wrong type stays wrong whatever is filled in below it.
    return f"{place}/".startswith(f"{detail.pointer}/") and detail.code != "type"


def _uses_keyword(schema: Any, keywords: tuple[str, ...]) -> bool:
    if isinstance(schema, Mapping):
        return any(word in schema for word in keywords) or any(_uses_keyword(each, keywords) for each in schema.values())
    return isinstance(schema, list | tuple) and any(_uses_keyword(each, keywords) for each in schema)
