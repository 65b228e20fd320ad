"""Texts compared line by line, with the words that differ."""

import pytest

from appliance.processes import line_diff
from appliance.processes.line_diff import Hunk, Line, Piece, compare_texts


def hunks(old: str, new: str) -> tuple[Hunk, ...]:
    (told,) = compare_texts([("a", old, new)])
    assert told.hunks is not None
    return told.hunks


def test_a_line_that_changed_has_its_words_marked_and_its_numbers() -> None:
    (hunk,) = hunks("a\nlimit: 100 # high\nc\n", "a\nlimit: 250 # high\nc\n")
    assert hunk.passed == 0
    assert hunk.lines == (
        Line("same", 1, 1, (Piece("a"),)),
        Line("removed", 2, None, (Piece("limit: "), Piece("100", True), Piece(" # high"))),
        Line("added", None, 2, (Piece("limit: "), Piece("250", True), Piece(" # high"))),
        Line("same", 3, 3, (Piece("c"),)),
    )


def test_lines_without_anything_in_common_are_not_marked() -> None:
    (hunk,) = hunks("export default 1;\n", "name: Claims\n")
    assert [line.pieces for line in hunk.lines] == [(Piece("export default 1;"),), (Piece("name: Claims"),)]


def test_what_lies_between_two_changes_is_counted() -> None:
    lines = [str(index) for index in range(60)]
    changed = ["first", *lines[1:50], "late", *lines[51:]]
    first, second = hunks("\n".join(lines), "\n".join(changed))
    assert (first.passed, second.passed) == (0, 43)
    assert (second.lines[0].old, second.lines[0].new) == (48, 48)


def test_only_what_differs_is_told_and_how_much() -> None:
    told = compare_texts([("same", "x", "x"), ("new", None, "1\n2"), ("gone", "1", None), ("empty", None, "")])
    assert [(each.name, each.happened, each.removed, each.added) for each in told] == [
        ("new", "added", 0, 2), ("gone", "removed", 1, 0), ("empty", "added", 0, 0),
    ]  # fmt: skip


def test_texts_that_are_too_long_are_named_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_diff, "MOST_WORK", 10)
    short, long = compare_texts([("short", "1\n2", "1\n3"), ("long", "1\n2\n3\n4", "4\n3\n2\n1")])
    assert short.hunks is not None
    assert long.hunks is None
