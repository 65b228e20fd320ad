"""Reads the operator's folder of declarative connectors, one YAML file each."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.connectors.declarative.connector import DeclarativeConnector, make_connector
from appliance.connectors.declarative.document import DocumentInvalid, read_document

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Declared:
    """One file and the connector it defines, or the problem that prevents its use."""

    name: str
    file: str
    connector: type[DeclarativeConnector] | None
    problem: str = ""


def read_folder(folder: Path) -> Iterator[Declared]:
    """Read every `*.yaml` of the folder, ordered by file name."""
    if not folder.is_dir():
        return
    for path in sorted(folder.glob("*.yaml")):
        try:
            plan = read_document(path.read_text("utf-8"))
        except (DocumentInvalid, OSError, UnicodeError) as error:
            yield Declared(path.stem, path.name, None, f"{path.name}, {error}")
        else:
            yield Declared(path.stem, path.name, make_connector(plan))
