"""How a test compares what came out with what was expected: what it does not name is free; pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.processes.definitions.reading import pointer_token

SHOWN = 300
ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One place where they differ; `ABSENT` stands for a member that is not there."""

    pointer: str
    expected: Any
    found: Any

    def describe(self) -> str:
        """`/total: expected 440, found 441`."""
        return f"{self.pointer or '/'}: expected {_shown(self.expected)}, found {_shown(self.found)}"


def find_differences(expected: Any, found: Any, pointer: str = "") -> Iterator[Difference]:
    """Where `found` is not as expected.

    An object must have the members that are named, others are free; a list must have as many items; 1 and 1.0 are equal,
    1 and true are not.
    """
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for name, value in expected.items():
            at = f"{pointer}/{pointer_token(name)}"
            if name in found:
                yield from find_differences(value, found[name], at)
            else:
                yield Difference(at, value, ABSENT)
    elif isinstance(expected, list) and isinstance(found, list):
        for index in range(max(len(expected), len(found))):
            at = f"{pointer}/{index}"
            if index < len(expected) and index < len(found):
                yield from find_differences(expected[index], found[index], at)
            else:
                yield Difference(
                    at,
                    expected[index] if index < len(expected) else ABSENT,
                    found[index] if index < len(found) else ABSENT,
                )
    elif isinstance(expected, bool) is not isinstance(found, bool) or expected != found:
        yield Difference(pointer, expected, found)


def _shown(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
