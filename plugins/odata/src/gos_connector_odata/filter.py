"""Binds values to the :names of a filter, so that no value can change the filter."""

import re
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import ConfigError

# Quoted text is left unchanged ('' is a quote within it); a name follows a colon that is not preceded by a word character.
_TOKEN = re.compile(r"'(?:[^']|'')*'|(?<!\w):([A-Za-z_]\w*)")
_LITERAL = re.compile(
    r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
    r"|-?\d{4,}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d))?"
    r"|\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
    r"|-?\d+(?:\.\d+)?"
    r"|duration'-?P[0-9DTHMS.]+'"
)


def bind(text: str, params: Mapping[str, Any]) -> str:
    """The filter with a literal in place of each :name; ConfigError when names and values do not match."""
    used: set[str] = set()

    def value(match: "re.Match[str]") -> str:
        name = match[1]
        if name is None:
            return match[0]
        if name not in params:
            raise ConfigError(f"The filter contains :{name}, for which `params` has no value.")
        used.add(name)
        return _format_value(name, params[name])

    bound = _TOKEN.sub(value, text)
    unused = sorted(set(params) - used)
    if unused:
        raise ConfigError(f"`params` has {unused[0]!r}, but the filter does not contain :{unused[0]}.")
    return bound


def _format_value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        if not _LITERAL.fullmatch(value["literal"]):
            raise ConfigError(
                f"The literal of {name!r} is not a number, date, time, duration or GUID; give text without `literal`."
            )
        return str(value["literal"])
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)
