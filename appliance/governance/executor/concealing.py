"""What rules hide of a result: removed at JSON pointers before anybody sees it or anything keeps it."""

from collections.abc import Mapping, Sequence
from typing import Any

from appliance.connectors.contract import ConnectorError

EACH = "*"
"""A segment of a pointer that stands for every element of an array and every member of an object."""


def conceal(value: Any, pointers: Sequence[str]) -> Any:
    """The value without what the pointers name; what is not there is no error.  `*` stands for each element or member.

    Every pointer counts elements as they came: where one is hidden, None holds its place.
    """
    for pointer in pointers:
        segments = [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]
        value = _without(value, segments)
    return value


def _without(value: Any, segments: Sequence[str]) -> Any:
    if not segments:
        return None
    first, rest = segments[0], segments[1:]
    if isinstance(value, dict):
        if not rest:
            return {name: item for name, item in value.items() if first not in (name, EACH)}
        return {name: _without(item, rest) if first in (name, EACH) else item for name, item in value.items()}
    if isinstance(value, list):
        if not rest:
            # None holds the place: the next pointer counts the elements as they came.
            return [] if first == EACH else [None if first == str(place) else item for place, item in enumerate(value)]
        return [_without(item, rest) if first in (str(place), EACH) else item for place, item in enumerate(value)]
    return value


def conceal_failure(error: ConnectorError, label: str) -> None:
    """Leave of a failure its class, its outcome and the status: what else it says may quote the foreign system."""
    status = error.details.get("status")
    told = f" ({status})" if isinstance(status, int) else ""
    error.message = f"{label} failed: {error.error_class}{told}; a rule hides what the foreign system said, look there for more."
    error.args = (error.message,)
    error.details = {"status": status} if isinstance(status, int) else {}


def conceal_hosts(told: Mapping[str, Any] | None, known: str) -> dict[str, Any] | None:
    """The traffic with only those hosts that the settings name (`known`, with commas): a redirect may name any."""
    if told is None:
        return None
    names = {part.strip().lower() for part in known.split(",")}
    return {**told, "hosts": [each for each in told["hosts"] if {each.lower(), each.lower().rpartition(":")[0]} & names]}
