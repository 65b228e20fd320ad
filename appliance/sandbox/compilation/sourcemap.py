"""Finds original positions through a source map, revision 3 (ECMA-426)."""

from __future__ import annotations

import json
from bisect import bisect_right
from functools import cached_property

_DIGITS = {character: value for value, character in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}


def _numbers(segment: str) -> list[int]:
    """The base64 VLQ numbers of one segment."""
    out, shift, value = [], 0, 0
    for character in segment:
        digit = _DIGITS[character]
        value |= (digit & 31) << shift
        if digit & 32:
            shift += 5
        else:
            out.append(-(value >> 1) if value & 1 else value >> 1)
            shift = value = 0
    return out


class SourceMap:
    """The source map of one file with one source; decoded on first use, as it is needed only for failures."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _lines(self) -> list[list[tuple[int, int, int]]]:
        lines, line, column = [], 0, 0
        for row in json.loads(self._text)["mappings"].split(";"):
            generated, entries = 0, []
            for segment in filter(None, row.split(",")):
                numbers = _numbers(segment)
                generated += numbers[0]
                if len(numbers) >= 4:
                    line += numbers[2]
                    column += numbers[3]
                    entries.append((generated, line, column))
            lines.append(entries)
        return lines

    def original(self, line: int, column: int) -> tuple[int, int] | None:
        """The source line and column for a generated line and column (all from 1); None if unmapped."""
        if not 1 <= line <= len(self._lines):
            return None
        entries = self._lines[line - 1]
        at = bisect_right(entries, column - 1, key=lambda entry: entry[0]) - 1
        if at < 0:
            return None
        return entries[at][1] + 1, entries[at][2] + 1
