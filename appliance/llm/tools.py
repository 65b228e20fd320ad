"""Tools as a model is told of them, what it asks of them and what they answered.  Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from appliance.core.database.db import dump_json

from .structured import read_json

Choice = Literal["auto", "required", "none"]
MOST_CALLS = 100
_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


@dataclass(frozen=True)
class ToolOffer:
    """A tool that a model may ask for; `parameters` is the JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """What a model asks of a tool: `arguments` as it wrote them, which need not be JSON, nor the tool one that there is."""

    id: str
    name: str
    arguments: str

    @property
    def value(self) -> dict[str, Any] | None:
        """The arguments; None when they are no JSON object."""
        try:
            found = read_json(self.arguments) if self.arguments.strip() else {}
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class ToolResult:
    """What a call came to, for the model to read; `is_failure` where the provider has a word for that."""

    call_id: str
    name: str
    text: str
    is_failure: bool = False


def sendable_name(name: str) -> str:
    """A name as every provider takes it back: a model may have asked for what no tool can be called."""
    return _NAME.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def sendable_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as every provider takes them back: what was no JSON object becomes the only member of one."""
    value = call.value
    return {"not_a_json_object": call.arguments} if value is None else value


def read_call(call_id: Any, name: Any, arguments: Any) -> ToolCall:
    """A call as a provider gave it, whatever that is; some give the arguments as JSON and some as its text."""
    text = arguments if isinstance(arguments, str) else "" if arguments is None else _dump(arguments)
    return ToolCall(
        call_id if isinstance(call_id, str) else "",
        (name if isinstance(name, str) else "").encode("utf-8", "replace").decode(),
        text.encode("utf-8", "replace").decode(),
    )


def _dump(value: Any) -> str:
    try:
        return dump_json(value)
    except ValueError:  # NaN, which Python's reader takes and no JSON has
        return json.dumps(value)


def distinct(calls: Iterable[ToolCall], taken: Iterable[str]) -> tuple[ToolCall, ...]:
    """The calls under ids that nothing before them has: each result must find its call, and some servers number badly."""
    known = set(taken)
    found = []
    for call in calls:
        wanted = _NAME.sub("_", call.id)[:_LONGEST_NAME] or "call"
        given, number = wanted, 1
        while given in known or (given == "call" and not call.id):
            number += 1
            given = f"{wanted[: _LONGEST_NAME - 8]}_{number}"
        known.add(given)
        found.append(replace(call, id=given))
    return tuple(found)
