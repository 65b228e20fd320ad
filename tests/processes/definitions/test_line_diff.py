"""Texts compared line by line, with the words that differ."""

import sys
from html import escape
from types import FrameType
from typing import Any

import pytest

from appliance.processes.definitions import line_diff
from appliance.processes.definitions.line_diff import Hunk, Line, Piece, compare_texts


def hunks(old: str, new: str) -> tuple[Hunk, ...]:
    (diffs,) = compare_texts([("a", old, new)])
    return diffs.hunks


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


def test_unchanged_lines_between_changes_are_counted() -> None:
    lines = [str(index) for index in range(60)]
    changed = ["first", *lines[1:50], "late", *lines[51:]]
    first, second = hunks("\n".join(lines), "\n".join(changed))
    assert (first.passed, second.passed) == (0, 43)
    assert (second.lines[0].old, second.lines[0].new) == (48, 48)


def test_only_differences_are_reported_with_their_size() -> None:
    diffs = compare_texts([("same", "x", "x"), ("new", None, "1\n2"), ("gone", "1", None), ("empty", None, "")])
    assert [(each.name, each.happened, each.removed, each.added) for each in diffs] == [
        ("new", "added", 0, 2), ("gone", "removed", 1, 0), ("empty", "added", 0, 0),
    ]  # fmt: skip


REPETITIVE = [
    (" ".join(["a", "b"] * 250), " ".join(["a", "c"] * 250)),
    ("\n".join(["a", "b"] * 600), "\n".join(["a", "c"] * 600)),
    ("\n".join(f'{{"id": "{n}"}}' for n in range(2400)), "\n".join(f'{{"id": "x{n}"}}' for n in range(2400))),
    ("\n".join(" ".join(["a", "b"] * 90) for _ in range(90)), "\n".join(" ".join(["a", "c"] * 90) for _ in range(91))),
]


@pytest.mark.parametrize(("old", "new"), REPETITIVE)
def test_texts_made_to_be_slow_take_no_more_steps_than_there_are(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Lines of Python are counted: some for each step, and some for what takes as long as the texts are."""
    monkeypatch.setattr(line_diff, "MAX_WORK", 20_000)
    lines, before = 0, sys.gettrace()

    def count(_frame: FrameType, event: str, _value: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    sys.settrace(count)
    try:
        diffs = compare_texts([("a", old, new)])
    finally:
        sys.settrace(before)
    assert [each.happened for each in diffs] == ["changed"]
    assert lines <= 10 * 20_000 + 10 * (len(old) + len(new))


@pytest.mark.parametrize(("old", "new"), [*REPETITIVE, ("", "<&>" * 100_000), ("", "\n".join('"' * 300 for _ in range(3000)))])
def test_a_diff_is_limited_in_size_and_counts_the_rest(old: str, new: str) -> None:
    diffs = compare_texts([("a", old, new), ("b", old, new), ("c", "1", "2")])
    lines = [line for each in diffs for hunk in each.hunks for line in hunk.lines]
    assert sum(len(escape(piece.text)) for line in lines for piece in line.pieces) <= 80_000
    assert sum(line.sign != "same" for line in lines) + sum(each.left_out for each in diffs) == sum(
        each.removed + each.added for each in diffs
    )
    assert diffs[0].hunks


def test_a_long_line_is_shown_with_its_ends_and_what_changed() -> None:
    (hunk,) = hunks("x" * 3000 + " 1 " + "y" * 3000, "x" * 3000 + " 2 " + "y" * 3000)
    assert [line.cut for line in hunk.lines] == [4002, 4002]
    assert [piece.text for piece in hunk.lines[0].pieces if piece.is_changed] == ["1"]


def test_a_completely_changed_long_text_alternates_old_and_new_lines() -> None:
    (hunk,) = hunks("\n".join(f"old {n}" for n in range(100)), "\n".join(f"new {n}" for n in range(100)))
    assert [line.sign for line in hunk.lines[:41:20]] == ["removed", "added", "removed"]
    assert [line.old for line in hunk.lines if line.old] == list(range(1, 101))


def test_without_enough_work_budget_lines_are_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_diff, "MAX_WORK", 10)
    (same,) = compare_texts([("a", "1\n2\n3\n4\n5", "x\n2\ny\n4\nz")])
    assert (same.removed, same.added) == (3, 3)
    (other,) = compare_texts([("a", "1\n2\n3\n4\n5", "x\n2\ny\n4\nz\nzz")])
    assert (other.removed, other.added) == (5, 6)
