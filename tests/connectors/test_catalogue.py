"""The catalogue in docs/ matches the connectors' declarations, and its search covers all their texts."""

from pathlib import Path

import pytest

from appliance.cli import main
from appliance.connectors import catalogue
from appliance.connectors.registry import load_registry

PAGE = Path(__file__).parents[2] / "docs" / "catalogue.md"


def test_the_catalogue_page_matches_the_declarations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connector", "catalogue"]) == 0
    assert PAGE.read_text("utf-8") == capsys.readouterr().out, "update it: gos connector catalogue > docs/catalogue.md"


def test_every_plugin_states_what_it_was_tested_against() -> None:
    assert [entry.name for entry in catalogue.entries(load_registry()) if not entry.tested_against] == []


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("MariaDB", {"mysql"}),
        ("openssh 9", {"sftp"}),
        ("new_mail", {"email"}),
        ("oauth2 bearer dataverse", {"dynamics365"}),
        ("no-such-word", set()),
    ],
)
def test_a_search_matches_every_word(words: str, names: set[str]) -> None:
    matches = {entry.name for entry in catalogue.entries(load_registry(), words)}
    assert matches == names
