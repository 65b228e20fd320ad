"""Values of entities are formatted as table cells."""

import pytest

from appliance.console.frame.display_values import format_value

RELATION = {"name": "maker", "type": "relation", "collection": "makers"}


@pytest.mark.parametrize("value", [{"a": 1}, [1, "x"], 7])
def test_values_from_before_a_field_became_a_relation_are_shown(value: object) -> None:
    assert format_value(RELATION, value, {}).kind == "text"


def test_a_relation_is_a_link_by_its_title() -> None:
    cell = format_value(RELATION, "ent_1", {("makers", "ent_1"): "Olive"})
    assert (cell.kind, cell.text, cell.url) == ("link", "Olive", "/console/datapool/makers/ent_1")
