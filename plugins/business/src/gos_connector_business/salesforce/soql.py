"""SOQL with values bound to its :names, so that no value can change what the query asks."""

import re
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import ConfigError

# A quoted text stays as it is, backslashes and all; a name follows a colon that no word precedes.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|(?<![\w:]):([A-Za-z_]\w*)", re.DOTALL)
_LITERAL = re.compile(
    r"-?\d+(?:\.\d+)?"
    r"|\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:\.\d{1,3})?(?:Z|[+-]\d\d:\d\d))?"
    r"|[A-Z]{3}-?\d+(?:\.\d+)?"  # a sum of money in a currency
    r"|(?:TODAY|YESTERDAY|TOMORROW|(?:LAST|THIS|NEXT)_(?:WEEK|MONTH|QUARTER|YEAR)|(?:LAST|NEXT)_N_(?:DAYS|WEEKS|MONTHS|YEARS):\d{1,4})"
)
# What a text in SOQL may hold only behind a backslash.
_ESCAPED = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def bind(text: str, params: Mapping[str, Any]) -> str:
    """The query with each :name replaced; ConfigError when names and values do not match."""
    used: set[str] = set()

    def value(match: "re.Match[str]") -> str:
        name = match[1]
        if name is None:
            return match[0]
        if name not in params:
            raise ConfigError(f"The query names :{name}, for which `params` has no value.")
        used.add(name)
        return _written(name, params[name])

    bound = _TOKEN.sub(value, text)
    unused = sorted(set(params) - used)
    if unused:
        raise ConfigError(f"`params` has {unused[0]!r}, which the query does not name.")
    return bound


def _written(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list):
        if not value:
            raise ConfigError(f"The list {name!r} is empty, which SOQL has no way to write.")
        return f"({','.join(_written(name, each) for each in value)})"
    if isinstance(value, Mapping):
        if not _LITERAL.fullmatch(value["literal"]):
            raise ConfigError(f"The literal of {name!r} is no number, date, time or SOQL's name of a span of days.")
        return str(value["literal"])
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(text: str) -> str:
    """A text as SOQL writes it; ConfigError for control characters, for which it has no way to."""
    if any(ord(each) < 32 and each not in _ESCAPED for each in text):
        raise ConfigError("A text in a query holds a control character.")
    return "'" + "".join(_ESCAPED.get(each, each) for each in text) + "'"
