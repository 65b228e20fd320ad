"""Rooms with doors: from outside, tests of other rooms included, only what a room's `__init__.py` offers is imported."""

import ast
import importlib
import tomllib
from pathlib import Path

from tests.architecture.source_tree import ROOT, imported_modules, name_of, offences_in, python_files, tree_of


def rooms_with_doors() -> list[str]:
    """The rooms that import-linter protects: `formats` for `appliance.formats`."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    protected = [each["allowed_importers"] for each in contracts if each["type"] == "protected"]
    return [package.removeprefix("appliance.") for packages in protected for package in packages]


def find_side_entrances(path: Path, tree: ast.AST, rooms: list[str]) -> list[str]:
    """Imports of what a room does not offer, in a file that belongs neither to the room nor to its tests."""
    foreign = [room for room in rooms if not name_of(path).startswith((f"appliance/{room}/", f"tests/{room}/"))]
    offers = {room: importlib.import_module(f"appliance.{room}").__all__ for room in foreign}
    offences = []
    for line, name in imported_modules(tree):
        package, _, rest = name.partition(".")
        room, *inside = rest.split(".")
        if package == "appliance" and inside and room in offers and (len(inside) > 1 or inside[0] not in offers[room]):
            offences.append(f"line {line} imports {name}")
    return offences


def test_a_room_is_entered_by_its_door() -> None:
    rooms = rooms_with_doors()
    assert len(rooms) >= 4
    files = python_files("appliance", "tests", "plugins")
    assert offences_in(files, lambda path: find_side_entrances(path, tree_of(path), rooms)) == {}


def test_a_side_entrance_is_found() -> None:
    source = ast.parse("from appliance.formats import Formats, warm\nfrom appliance.formats.rows import scalar_text")
    assert find_side_entrances(ROOT / "tests/documents/test_x.py", source, ["formats"]) == [
        "line 1 imports appliance.formats.warm",
        "line 2 imports appliance.formats.rows.scalar_text",
    ]
    assert find_side_entrances(ROOT / "tests/formats/test_x.py", source, ["formats"]) == []
