"""Translates the texts that connectors declare: titles, summaries, and the titles and descriptions in their schemas."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from appliance.connectors.contract import Connector
from appliance.core.texts import current_language

CONTEXT = "connector"  # the gettext context of these texts
_TRANSLATED = ("title", "description")
_DATA = ("enum", "const", "default", "examples")


def translate(text: str) -> str:
    """Translate a text of a connector to the current language; unchanged when there is no translation."""
    return current_language().catalogue.pgettext(CONTEXT, text) if text else ""


def translate_schema(schema: Any) -> Any:
    """Return a schema with its titles and descriptions translated to the current language."""
    if isinstance(schema, list):
        return [translate_schema(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: translate(part)
        if name in _TRANSLATED and isinstance(part, str)
        else part
        if name in _DATA
        else translate_schema(part)
        for name, part in schema.items()
    }


def texts_of(connector: type[Connector]) -> Iterator[str]:
    """Yield every translatable text of a connector."""
    yield connector.title
    yield from _in_schema(connector.settings_schema)
    for action in connector.actions:
        yield action.summary
        yield from _in_schema(action.input)
    for trigger in connector.triggers:
        yield trigger.summary
        yield from _in_schema(trigger.query)


def _in_schema(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _in_schema(each)
    elif isinstance(schema, Mapping):
        for name, part in schema.items():
            if name in _TRANSLATED and isinstance(part, str):
                yield part
            elif name not in _DATA:
                yield from _in_schema(part)


def folder_of(package: str) -> Path | None:
    """Return the `translations` folder of a connector's package, None when it has none; does not import the package."""
    spec = find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (folder := Path(place) / "translations").is_dir():
            return folder
    return None
