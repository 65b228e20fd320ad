"""What an `integration` step writes out, held against the action it is for: wrong members show before anybody approves the call."""

from collections.abc import Iterator, Mapping
from typing import Any

from appliance.connectors.contract import Action
from appliance.core.errors import Detail
from appliance.core.json_schema import compile_schema, pointer_token

from .nodes import Definition, Problem, Step
from .surroundings import Actions, Surroundings
from .template import Template

_MOST_NAMED = 20
# With these what is required may depend on a value that only an execution knows.
_CONDITIONS = ("if", "dependentSchemas")


def integrations_used(definition: Definition) -> list[str]:
    """The integrations whose actions its steps perform."""
    return sorted({step.settings["use"] for step in _integration_steps(definition)})


def action_problems(definition: Definition, around: Surroundings) -> list[Problem]:
    """A problem for every action that its integration does not have, and for every literal that the action does not take.

    What an expression will come to is left to the execution.  Nothing is said of integrations whose actions are not known.
    """
    return [
        problem
        for step in _integration_steps(definition)
        if (actions := around.integrations.get(step.settings["use"])) is not None
        for problem in _problems_of(step, actions)
    ]


def _integration_steps(definition: Definition) -> Iterator[Step]:
    steps = (step for step in definition.all_steps() if step.kind == "integration")
    return (step for step in steps if step.settings.get("use") and step.settings.get("action"))


def _problems_of(step: Step, actions: Actions) -> Iterator[Problem]:
    name, slug = step.settings["action"], step.settings["use"]
    action = actions.get(name)
    if action is None:
        named = ", ".join(sorted(actions)) if len(actions) <= _MOST_NAMED else f"{len(actions)} others"
        message = f"{slug} has no action {name[:80]!r}; it has {named or 'none'}"
        yield Problem(f"{step.pointer}/integration/action", "action_unknown", message)
        return
    template = step.templates.get("input") or step.templates.get("step_input")
    if template is None:
        return
    for detail in _literal_problems(action, template):
        message = f"the input does not suit {name} of {slug}; {detail.pointer or '/'}: {detail.message}"
        yield Problem(template.pointer + detail.pointer, "input_invalid", message)


def _literal_problems(action: Action, template: Template) -> Iterator[Detail]:
    """The problems that hold whatever the expressions come to."""
    filled = {"".join(f"/{pointer_token(part)}" for part in place) for place, _ in template.slots}
    if "" in filled or (filled and _mentions(action.input, _CONDITIONS)):
        return
    for detail in compile_schema(action.input).problems(template.value):
        if not any(_is_open(detail, place) for place in filled):
            yield detail


def _is_open(detail: Detail, place: str) -> bool:
    """Whether the problem may go when the expression at `place` has its value."""
    if f"{detail.pointer}/".startswith(f"{place}/"):
        return detail.code != "additionalProperties"
    # A list or an object of the wrong kind stays one, whatever is filled in below.
    return f"{place}/".startswith(f"{detail.pointer}/") and detail.code != "type"


def _mentions(schema: Any, words: tuple[str, ...]) -> bool:
    if isinstance(schema, Mapping):
        return any(word in schema for word in words) or any(_mentions(each, words) for each in schema.values())
    return isinstance(schema, list | tuple) and any(_mentions(each, words) for each in schema)
