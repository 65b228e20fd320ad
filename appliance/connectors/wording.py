"""What connectors say of themselves, in the reader's language: titles, summaries, and the fields of their schemas."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from appliance.connectors.contract import Connector
from appliance.core.texts import language

CONTEXT = "connector"  # of these texts in a catalogue
_SAID = ("title", "description")
_DATA = ("enum", "const", "default", "examples")


def said(text: str) -> str:
    """A text of a connector in the language spoken now; as it is when no translation is known."""
    return language().catalogue.pgettext(CONTEXT, text) if text else ""


def said_schema(schema: Any) -> Any:
    """A schema with its titles and descriptions in the language spoken now."""
    if isinstance(schema, list):
        return [said_schema(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: said(part) if name in _SAID and isinstance(part, str) else part if name in _DATA else said_schema(part)
        for name, part in schema.items()
    }


def texts_of(connector: type[Connector]) -> Iterator[str]:
    """Everything that `said` and `said_schema` are asked of this connector."""
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
            if name in _SAID and isinstance(part, str):
                yield part
            elif name not in _DATA:
                yield from _in_schema(part)


def folder_of(connector: type[Connector]) -> Path | None:
    """Where the package of a connector keeps the translations that it brings; None when there are none."""
    file = getattr(sys.modules.get(connector.__module__.partition(".")[0]), "__file__", None)
    folder = Path(file).parent / "translations" if file else None
    return folder if folder is not None and folder.is_dir() else None
