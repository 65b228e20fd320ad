"""Redacts results: removes the values at JSON pointers before anyone sees or stores them."""

from collections.abc import Mapping, Sequence
from typing import Any

from appliance.connectors.contract import ConnectorError

EACH = "*"
"""A pointer segment that matches every element of an array and every member of an object."""


def redact(value: Any, pointers: Sequence[str]) -> Any:
    """The value without what the pointers name; missing members are ignored.  `*` matches each element or member.

    Pointers count elements of the original array: a removed element leaves None in its place.
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
            # None keeps the position: the next pointer counts the elements of the original array.
            return [] if first == EACH else [None if first == str(place) else item for place, item in enumerate(value)]
        return [_without(item, rest) if first in (str(place), EACH) else item for place, item in enumerate(value)]
    return value


def redact_failure(error: ConnectorError, label: str) -> None:
    """Reduce a failure to its class, its outcome and the status: everything else may quote the foreign system."""
    status = error.details.get("status")
    suffix = f" ({status})" if isinstance(status, int) else ""
    error.message = f"{label} failed: {error.error_class}{suffix}; a rule redacts its message, so check the foreign system."
    error.args = (error.message,)
    error.details = {"status": status} if isinstance(status, int) else {}


def redact_hosts(traffic: Mapping[str, Any] | None, setting_hosts: str) -> dict[str, Any] | None:
    """The traffic with only those hosts that the settings name (`known`, comma-separated), since a redirect may name any."""
    if traffic is None:
        return None
    names = {part.strip().lower() for part in setting_hosts.split(",")}
    return {**traffic, "hosts": [each for each in traffic["hosts"] if {each.lower(), each.lower().rpartition(":")[0]} & names]}
