"""Fields of a collection as rows of a form, and back."""

from typing import Any

import pytest

from appliance.console.pages.datapool.schema_forms import definition_of, rows_of

SIZES = ["small, round", 'the "big"', '"odd', " edged ", "plain"]
DOCUMENT: dict[str, Any] = {
    "fields": [{"id": "fld_1", "name": "size", "type": "select", "options": SIZES, "required": False, "unique": False}]
}  # fmt: skip


def options_of(details: str) -> Any:
    rows = rows_of(DOCUMENT)
    rows[0].details = details
    return definition_of(rows, DOCUMENT)["fields"][0]["options"]


def test_unchanged_options_stay_as_they_are() -> None:
    assert options_of(rows_of(DOCUMENT)[0].details.strip()) == SIZES


def test_an_option_with_a_comma_stays_one_when_another_is_added() -> None:
    assert options_of(rows_of(DOCUMENT)[0].details + ", new") == [*(each.strip() for each in SIZES), "new"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a, b,c", ["a", "b", "c"]), ("a,, b ,", ["a", "b"]), ('5" disk, b', ['5" disk', "b"]), ("a\nb", ["a", "b"])],
)
def test_options_are_separated_by_commas(text: str, expected: list[str]) -> None:
    assert options_of(text) == expected
