"""Example processes: each is complete, can be published as it is, and shows one feature."""

from dataclasses import dataclass
from pathlib import Path

from appliance.core import yaml12
from appliance.core.errors import NotFound
from appliance.core.sentences import Sentence
from appliance.processes.definitions.versions import Draft

__all__ = ["Example", "draft_of", "list_examples"]

FOLDER = Path(__file__).parent
DEFINITION = "process.yaml"


@dataclass(frozen=True)
class Example:
    """An example: `name` is its folder and part of its URL; `title` and `description` come from the definition."""

    name: str
    title: str
    description: str


def list_examples() -> list[Example]:
    """The examples, sorted by name."""
    return [_read(folder) for folder in sorted(FOLDER.iterdir()) if (folder / DEFINITION).is_file()]


def draft_of(name: str, process_id: str, title: str) -> Draft:
    """A new draft from an example, with its own id and title; raises NotFound for an unknown example."""
    folder = FOLDER / name
    if name not in {each.name for each in list_examples()}:
        raise NotFound(Sentence("there is no example %(name)s; choose one from the list", name=repr(name[:40])))
    source = (folder / DEFINITION).read_text("utf8")
    lines = source.splitlines(keepends=True)
    if title:
        lines[0] = yaml12.dump({"name": title})
    source = "".join(lines)
    files = {
        path.relative_to(folder).as_posix(): path.read_text("utf8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != DEFINITION
    }
    return Draft({"id": process_id, **yaml12.load(source)}, files, source)


def _read(folder: Path) -> Example:
    definition = yaml12.load((folder / DEFINITION).read_text("utf8"))
    return Example(folder.name, definition["name"], definition["description"])
