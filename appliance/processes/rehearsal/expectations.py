"""Compares actual with expected values of a test; members that the expectation does not name are ignored; pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.processes.definitions.reader import pointer_token

MAX_CHARS = 300
ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One difference; `ABSENT` marks a missing member or item."""

    pointer: str
    expected: Any
    actual: Any

    def describe(self) -> str:
        """`/total: expected 440, found 441`."""
        return f"{self.pointer or '/'}: expected {_describe(self.expected)}, found {_describe(self.actual)}"


def find_differences(expected: Any, actual: Any, pointer: str = "") -> Iterator[Difference]:
    """Yields every place where the actual value is not as expected.

    An object must have the expected members and may have others; a list must have the same length; 1 equals 1.0 but not
    true.
    """
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for name, value in expected.items():
            at = f"{pointer}/{pointer_token(name)}"
            if name in actual:
                yield from find_differences(value, actual[name], at)
            else:
                yield Difference(at, value, ABSENT)
    elif isinstance(expected, list) and isinstance(actual, list):
        for index in range(max(len(expected), len(actual))):
            at = f"{pointer}/{index}"
            if index < len(expected) and index < len(actual):
                yield from find_differences(expected[index], actual[index], at)
            else:
                yield Difference(
                    at,
                    expected[index] if index < len(expected) else ABSENT,
                    actual[index] if index < len(actual) else ABSENT,
                )
    elif isinstance(expected, bool) is not isinstance(actual, bool) or expected != actual:
        yield Difference(pointer, expected, actual)


def _describe(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}… ({len(text)} characters)"
