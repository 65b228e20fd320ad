"""Tools offered to a model, its calls of them, and their results.  Pure."""

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
    """A tool that a model may call; `parameters` is the JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """A model's tool call, unvalidated: `arguments` may not be JSON, and the tool may not exist."""

    id: str
    name: str
    arguments: str

    @property
    def value(self) -> dict[str, Any] | None:
        """The arguments; None if they are not a JSON object."""
        try:
            value = read_json(self.arguments) if self.arguments.strip() else {}
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


@dataclass(frozen=True)
class ToolResult:
    """The result of a call, for the model; `is_failure` is passed on to providers that support it."""

    call_id: str
    name: str
    text: str
    is_failure: bool = False


def sendable_name(name: str) -> str:
    """The name in a form every provider accepts, because a model may call a tool by an invalid name."""
    return _NAME.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def sendable_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments in a form every provider accepts: anything but a JSON object becomes the only member of one."""
    value = call.value
    return {"not_a_json_object": call.arguments} if value is None else value


def read_call(call_id: Any, name: Any, arguments: Any) -> ToolCall:
    """Parse a call of any provider, tolerating wrong types; some send the arguments as JSON, some as its text."""
    text = arguments if isinstance(arguments, str) else "" if arguments is None else _dump(arguments)
    return ToolCall(
        call_id if isinstance(call_id, str) else "",
        (name if isinstance(name, str) else "").encode("utf-8", "replace").decode(),
        text.encode("utf-8", "replace").decode(),
    )


def _dump(value: Any) -> str:
    try:
        return dump_json(value)
    except ValueError:  # NaN, which Python's parser accepts although it is not JSON
        return json.dumps(value)


def with_distinct_ids(calls: Iterable[ToolCall], used_ids: Iterable[str]) -> tuple[ToolCall, ...]:
    """Make the ids of calls unique within the conversation: results refer to them, and some servers reuse ids."""
    seen = set(used_ids)
    renumbered = []
    for call in calls:
        base = _NAME.sub("_", call.id)[:_LONGEST_NAME] or "call"
        unique, number = base, 1
        while unique in seen or (unique == "call" and not call.id):
            number += 1
            unique = f"{base[: _LONGEST_NAME - 8]}_{number}"
        seen.add(unique)
        renumbered.append(replace(call, id=unique))
    return tuple(renumbered)
