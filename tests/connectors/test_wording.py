"""Texts of connectors are translated into the reader's language; their data stays unchanged."""

from gettext import NullTranslations
from pathlib import Path
from typing import Any

from appliance.connectors.registry import connector_packages, load_registry
from appliance.connectors.wording import CONTEXT, folder_of, texts_of, translate, translate_schema
from appliance.core.texts import Language, use_language


class _Shouting(NullTranslations):
    def pgettext(self, context: str, message: str) -> str:
        return f"{context}: {message.upper()}"


LOUD = Language("xx", "Loud", catalogue=_Shouting())
SCHEMA: dict[str, Any] = {
    "title": "Settings", "type": "object", "required": ["title"],
    "properties": {
        "title": {"type": "string", "title": "A title", "default": "title", "examples": [{"title": "data"}]},
        "mode": {"enum": ["description"], "description": "Which mode"},
    },
}  # fmt: skip


def test_titles_and_descriptions_are_translated_and_data_is_not() -> None:
    assert translate_schema(SCHEMA) == SCHEMA
    with use_language(LOUD):
        translated = translate_schema(SCHEMA)
        assert translate("") == ""
    assert translated["title"] == f"{CONTEXT}: SETTINGS"
    assert translated["properties"]["title"] == {**SCHEMA["properties"]["title"], "title": f"{CONTEXT}: A TITLE"}
    assert translated["properties"]["mode"] == {"enum": ["description"], "description": f"{CONTEXT}: WHICH MODE"}
    assert (translated["required"], translated["type"]) == (["title"], "object")


def test_every_text_of_a_connector_is_collected_for_translation() -> None:
    http = load_registry().installed["http"].connector
    collected = set(texts_of(http))
    assert {"HTTP", "Base address", "Read one address", "Values for {names} in the address."} <= collected
    looked_up: set[str] = set()

    class Listening(NullTranslations):
        def pgettext(self, context: str, message: str) -> str:
            looked_up.add(message)
            return message

    with use_language(Language("xx", "Listening", catalogue=Listening())):
        for schema in (http.settings_schema, *(each.input for each in http.actions), *(each.query for each in http.triggers)):
            translate_schema(schema)
    assert looked_up <= collected


def test_a_connector_may_bring_its_translations(tmp_path: Path, monkeypatch: Any) -> None:
    package = tmp_path / "shouting_connector"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('the package was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert folder_of("shouting_connector") is None
    (package / "translations").mkdir()
    assert folder_of("shouting_connector") == package / "translations"
    assert folder_of("no_such_package") is None


def test_the_packages_of_connectors_are_those_of_the_registry() -> None:
    loaded = {installed.connector.__module__.partition(".")[0] for installed in load_registry().installed.values()}
    assert set(connector_packages()) == loaded
