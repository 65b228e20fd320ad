"""Binds values to the :names of a SOQL query so that no value can change the meaning of the query."""

import re
from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import ConfigError

# Quoted text, including its backslash escapes, stays unchanged; a name follows a colon that is not preceded by a word.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|(?<![\w:]):([A-Za-z_]\w*)", re.DOTALL)
_LITERAL = re.compile(
    r"-?\d+(?:\.\d+)?"
    r"|\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:\.\d{1,3})?(?:Z|[+-]\d\d:\d\d))?"
    r"|[A-Z]{3}-?\d+(?:\.\d+)?"  # an amount in a currency
    r"|(?:TODAY|YESTERDAY|TOMORROW|(?:LAST|THIS|NEXT)_(?:WEEK|MONTH|QUARTER|YEAR)|(?:LAST|NEXT)_N_(?:DAYS|WEEKS|MONTHS|YEARS):\d{1,4})"
)
# Characters that must be escaped in a SOQL string.
_ESCAPED = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def bind(text: str, params: Mapping[str, Any]) -> str:
    """Replace each :name in the query by its value; ConfigError when names and values do not match."""
    used: set[str] = set()

    def value(match: "re.Match[str]") -> str:
        name = match[1]
        if name is None:
            return match[0]
        if name not in params:
            raise ConfigError(f"The query uses :{name}, but `params` has no value for it.")
        used.add(name)
        return _format_value(name, params[name])

    bound = _TOKEN.sub(value, text)
    unused = sorted(set(params) - used)
    if unused:
        raise ConfigError(f"`params` has {unused[0]!r}, which the query does not use.")
    return bound


def _format_value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list):
        if not value:
            raise ConfigError(f"The list {name!r} is empty; SOQL has no empty lists.")
        return f"({','.join(_format_value(name, each) for each in value)})"
    if isinstance(value, Mapping):
        if not _LITERAL.fullmatch(value["literal"]):
            raise ConfigError(f"The literal of {name!r} is not a number, date, time or SOQL date literal.")
        return str(value["literal"])
    return quote(value) if isinstance(value, str) else str(value)


def quote(text: str) -> str:
    """Return the text as a quoted SOQL string; ConfigError for control characters that SOQL cannot escape."""
    if any(ord(each) < 32 and each not in _ESCAPED for each in text):
        raise ConfigError("A text in the query contains a control character, which is not allowed.")
    return "'" + "".join(_ESCAPED.get(each, each) for each in text) + "'"
