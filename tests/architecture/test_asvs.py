"""Every requirement of OWASP ASVS 5.0.0, levels 1 and 2, is in docs/asvs once, with tests that exist or an honest reason."""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.architecture.asvs import PAGE, PREFIX, Requirement, read_table, update
from tests.architecture.source_tree import ROOT, tree_of
from tests.architecture.test_references import anchors_of

MOST_REASONS = 0.15
# The numbers of levels 1 and 2 by section: up to the number named, without those in brackets, which are of level 3.
EXPECTED = {
    "1.1": "2", "1.2": "9", "1.3": "11", "1.4": "3", "1.5": "2", "2.1": "3", "2.2": "3", "2.3": "4", "2.4": "1", "3.2": "2",
    "3.3": "4", "3.4": "6", "3.5": "5", "3.7": "2", "4.1": "3", "4.2": "1", "4.3": "2", "4.4": "4", "5.1": "1", "5.2": "3",
    "5.3": "2", "5.4": "3", "6.1": "3", "6.2": "12", "6.3": "4", "6.4": "4", "6.5": "5", "6.6": "3", "6.8": "4", "7.1": "3",
    "7.2": "4", "7.3": "2", "7.4": "5", "7.5": "2", "7.6": "2", "8.1": "2", "8.2": "3", "8.3": "1", "8.4": "1", "9.1": "3",
    "9.2": "4", "10.1": "2", "10.2": "2", "10.3": "4", "10.4": "11", "10.5": "5", "10.6": "2", "10.7": "3", "11.1": "2",
    "11.2": "3", "11.3": "3", "11.4": "4", "11.5": "1", "11.6": "1", "12.1": "3", "12.2": "2", "12.3": "4", "13.1": "1",
    "13.2": "5", "13.3": "2", "13.4": "5", "14.1": "2", "14.2": "4", "14.3": "3", "15.1": "3", "15.2": "3", "15.3": "7",
    "16.1": "1", "16.2": "5", "16.3": "4", "16.4": "3", "16.5": "3", "17.1": "1", "17.2": "4", "17.3": "2",
}  # fmt: skip
# The numbers of level 1; all others are of level 2.
FIRST_LEVEL = (
    "1.2.1-5 1.3.1-2 1.5.1 2.1.1 2.2.1-2 2.3.1 3.2.1-2 3.3.1 3.4.1-2 3.5.1-3 4.1.1 4.4.1 5.2.1-2 5.3.1-2 6.1.1 6.2.1-8 6.3.1-2 "
    "6.4.1-2 7.2.1-4 7.4.1-2 8.1.1 8.2.1-2 8.3.1 9.1.1-3 9.2.1 10.4.1-5 11.3.1-2 11.4.1 12.1.1 12.2.1-2 13.4.1 14.2.1 14.3.1 "
    "15.1.1 15.2.1 15.3.1"
)
TABLE = read_table()


def expand(text: str) -> set[str]:
    numbers = set()
    for part in text.split():
        first, _, last = part.partition("-")
        section, _, begin = first.rpartition(".")
        numbers |= {f"{PREFIX}{section}.{number}" for number in range(int(begin), int(last or begin) + 1)}
    return numbers


ALL = expand(" ".join(f"{section}.1-{last}" for section, last in EXPECTED.items()))


def find_wrong_numbers(rows: Sequence[Requirement]) -> list[str]:
    seen, first = Counter(row.number for row in rows), expand(FIRST_LEVEL)
    return [
        *(f"{number} is missing" for number in sorted(ALL - seen.keys())),
        *(f"{number} is not of level 1 or 2" for number in sorted(seen.keys() - ALL)),
        *(f"{number} is there {times} times" for number, times in seen.items() if times > 1),
        *(f"{row.number} is not of level {row.level}" for row in rows if row.level != (1 if row.number in first else 2)),
    ]


def find_missing_tests(rows: Sequence[Requirement]) -> list[str]:
    return sorted({test for row in rows for test in row.tests if not does_exist(test)})


def does_exist(test: str) -> bool:
    """Whether the module has a function of this name, without importing it."""
    name, _, function = test.partition("::")
    path = ROOT / name
    if not (path.is_file() and path.name.startswith("test_") and function.startswith("test_")):
        return False
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function for node in tree_of(path).body)


def find_contradictions(rows: Sequence[Requirement]) -> list[str]:
    return [
        *(f"{row.number} has neither tests nor a reason" for row in rows if not row.tests and not row.reason),
        *(f"{row.number} has tests and a reason" for row in rows if row.tests and row.reason),
        *(f"{row.number} is a gap without a reason" for row in rows if row.gap and not row.reason),
        *(f"{row.number} is absent without a test" for row in rows if row.absent and not row.tests),
        *(f"{row.number} names a test twice" for row in rows if len(set(row.tests)) < len(row.tests)),
        *(f"{row.number} is not in a few words" for row in rows if not 2 <= len(row.demands.split()) <= 15),
    ]


def find_missing_pages(rows: Sequence[Requirement]) -> list[str]:
    missing = []
    for place in (place for row in rows for place in row.docs):
        page, _, anchor = place.partition("#")
        if not (ROOT / page).is_file() or (anchor and anchor not in anchors_of(ROOT / page)):
            missing.append(place)
    return missing


def share_of_reasons(rows: Sequence[Requirement]) -> float:
    return sum(bool(row.reason) for row in rows) / len(rows)


def test_every_requirement_is_there_once_with_its_level() -> None:
    assert len(ALL) == 253
    assert len(expand(FIRST_LEVEL)) == 70
    assert find_wrong_numbers(TABLE) == []


def test_every_test_exists() -> None:
    assert find_missing_tests(TABLE) == []


def test_each_has_tests_or_a_reason() -> None:
    assert find_contradictions(TABLE) == []


def test_the_pages_that_answer_a_requirement_exist() -> None:
    assert find_missing_pages(TABLE) == []


def test_few_are_without_tests() -> None:
    assert share_of_reasons(TABLE) <= MOST_REASONS


def test_the_page_has_the_counts_and_the_gaps() -> None:
    page = PAGE.read_text("utf-8")
    assert page == update(page, TABLE), "run `.venv/bin/python -m tests.architecture.asvs` and commit the page"
    gaps = [row.number for row in TABLE if row.gap]
    listed = page.partition("### Gaps")[2].partition("### Without")[0]
    assert re.findall(r"^\| (v5\.0\.0-[\d.]+) ", listed, re.MULTILINE) == gaps


ROW = TABLE[0]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (TABLE[1:], "v5.0.0-1.1.1 is missing"), ([*TABLE, ROW], "v5.0.0-1.1.1 is there 2 times"),
        ([*TABLE, replace(ROW, number="v5.0.0-1.2.10")], "v5.0.0-1.2.10 is not of level 1 or 2"),
        ([replace(ROW, level=1), *TABLE[1:]], "v5.0.0-1.1.1 is not of level 1"),
    ],
)  # fmt: skip
def test_a_wrong_number_is_found(rows: list[Requirement], problem: str) -> None:
    assert find_wrong_numbers(rows) == [problem]


@pytest.mark.parametrize(
    "test",
    [
        "tests/none/test_none.py::test_a", "tests/architecture/test_asvs.py::test_none", "tests/architecture/test_asvs.py::expand",
        "x",
    ],
)  # fmt: skip
def test_a_missing_test_is_found(test: str) -> None:
    assert find_missing_tests([replace(ROW, tests=(test,))]) == [test]


@pytest.mark.parametrize(
    "changes",
    [{"tests": ()}, {"reason": "none"}, {"gap": True}, {"tests": (), "reason": "none", "absent": True}, {"demands": "word " * 16}],
)
def test_a_contradiction_is_found(changes: dict[str, object]) -> None:
    assert len(find_contradictions([replace(ROW, **changes)])) == 1  # type: ignore[arg-type]


def test_missing_pages_and_too_many_reasons_are_found() -> None:
    assert find_missing_pages([replace(ROW, docs=("docs/none.md", "docs/asvs.md#none"))]) == ["docs/none.md", "docs/asvs.md#none"]
    assert share_of_reasons([replace(ROW, tests=(), reason="none")] * 4 + TABLE[:20]) > MOST_REASONS
