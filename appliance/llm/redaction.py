"""Redacts prompts: replaces what patterns match with placeholders, and restores the values in answers.  Pure.

Patterns use RE2, which takes time linear in the text, so that a tenant's pattern cannot block the appliance.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import re2

BUILT_IN: Mapping[str, tuple[str, str]] = {
    "email": ("EMAIL", r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"),
    "iban": ("IBAN", r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"),
    "card": ("CARD", r"\b[0-9](?:[ -]?[0-9]){12,18}\b"),
    "phone": ("PHONE", r"\+[0-9](?:[ ()/.-]{0,2}[0-9]){6,14}\b|\b0[1-9](?:[ ()/.-]{0,2}[0-9]){5,13}\b"),
    "ip": ("IP", r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b"),
}


class PatternInvalid(ValueError):
    """The text is not a regular expression in RE2's syntax, or matches the empty text."""


@lru_cache(1000)
def compile_pattern(text: str) -> Any:
    """Compile a pattern; PatternInvalid if it is not valid or matches the empty text."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise PatternInvalid(f"this is not a regular expression in RE2's syntax: {reason}") from error
    if pattern.match("") is not None:
        raise PatternInvalid("this pattern matches the empty text; it must match at least one character")
    return pattern


@dataclass
class Mask:
    """The placeholders of one conversation; equal values get equal placeholders.

    `patterns` are pairs of (name, regular expression).
    """

    patterns: Iterable[tuple[str, str]]
    _placeholders: dict[str, str] = field(default_factory=dict)
    _values: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def hide(self, text: str) -> str:
        """Replace the matches of each pattern in order with placeholders such as `[EMAIL_1]`."""
        parts = [text]  # placeholders are at odd indexes, where later patterns do not search
        for name, pattern in self.patterns:
            parts = [piece for place, part in enumerate(parts) for piece in self._split(name, pattern, part, text, place)]
        return "".join(parts)

    def _split(self, name: str, pattern: str, part: str, text: str, place: int) -> list[str]:
        if place % 2:
            return [part]
        pieces, end = [], 0
        for match in compile_pattern(pattern).finditer(part):
            start, stop = match.span()
            if start < stop:
                pieces += [part[end:start], self._placeholder(name, part[start:stop], text)]
                end = stop
        return [*pieces, part[end:]]

    def hide_json(self, value: Any) -> Any:
        """Replace matches in every text of a JSON value, including member names."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            return {self.hide(str(name)): self.hide_json(inner) for name, inner in value.items()}
        return [self.hide_json(inner) for inner in value] if isinstance(value, list | tuple) else value

    def restore(self, value: Any) -> Any:
        """Replace the placeholders in the texts of a JSON value with their original values."""
        if not self._values:
            return value
        if isinstance(value, str):
            placeholders = re.compile("|".join(map(re.escape, self._values)))
            return placeholders.sub(lambda match: self._values[match[0]], value)
        if isinstance(value, Mapping):
            return {self.restore(str(name)): self.restore(inner) for name, inner in value.items()}
        return [self.restore(inner) for inner in value] if isinstance(value, list) else value

    def _placeholder(self, name: str, value: str, around: str) -> str:
        existing = self._placeholders.get(value)
        if existing is not None:
            return existing
        while True:
            self._counts[name] = self._counts.get(name, 0) + 1
            placeholder = f"[{name}_{self._counts[name]}]"
            if placeholder not in around:  # A text that already looks like this must not be restored to the value.
                break
        self._placeholders[value], self._values[placeholder] = placeholder, value
        return placeholder
