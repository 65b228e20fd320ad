"""Binds values to the `:names` in a query or filter, so that no value can change its meaning."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from appliance.connectors.failures import ConfigError

# A name follows a colon that is not preceded by a word or another colon.
_NAME = r"(?<![\w:]):(?P<name>[A-Za-z_]\w*)"


@dataclass(frozen=True)
class QueryLanguage:
    """How a query language writes values.

    `opaque` matches what is left unchanged although it may contain colons, such as quoted text.  `literal` matches the values
    that may be given as `{"literal": "2026-01-31"}` and stand in the query without quotes; `literals` names them in messages.
    """

    opaque: re.Pattern[str]
    literal: re.Pattern[str]
    literals: str
    quote: Callable[[str], str]

    def bind(self, text: str, params: Mapping[str, Any]) -> str:
        """Replace each :name by its value; ConfigError when names and values do not match or a value is invalid."""
        parts, values = split_at_names(text, params, self.opaque)
        written = (self._format(name, value) for name, value in values)
        return "".join(chain.from_iterable(zip_longest(parts, written, fillvalue="")))

    def _format(self, name: str, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if value is None:
            return "null"
        if isinstance(value, list):
            if not value:
                raise ConfigError(f"The list {name!r} is empty; give at least one value.")
            return f"({','.join(self._format(name, each) for each in value)})"
        if isinstance(value, Mapping):
            if not self.literal.fullmatch(value["literal"]):
                raise ConfigError(f"The literal of {name!r} is not {self.literals}; give text without `literal`.")
            return str(value["literal"])
        return self.quote(value) if isinstance(value, str) else str(value)


def split_at_names(text: str, params: Mapping[str, Any], opaque: re.Pattern[str]) -> tuple[list[str], list[tuple[str, Any]]]:
    """Split a text at its :names into n + 1 parts and n pairs of name and value; ConfigError when they do not match."""
    parts: list[str] = []
    values: list[tuple[str, Any]] = []
    end = 0
    for match in re.finditer(f"{opaque.pattern}|{_NAME}", text, opaque.flags):
        name = match["name"]
        if name is None:
            continue
        if name not in params:
            raise ConfigError(f"The query contains :{name}, for which `params` has no value.")
        parts.append(text[end : match.start()])
        values.append((name, params[name]))
        end = match.end()
    if unused := sorted(params.keys() - {name for name, _ in values}):
        raise ConfigError(f"`params` has {unused[0]!r}, but the query does not contain :{unused[0]}.")
    return [*parts, text[end:]], values
