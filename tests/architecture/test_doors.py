"""Other packages, and their tests, import from a package ("room") only what its `__init__.py` exports.

The exports are the `__all__` of a package and of its subpackages. A module in `__all__` is exported as a whole.
import-linter checks the layers; it knows modules, not names, and no tests, so the exports are checked here.
"""

import ast
import functools
import importlib
import importlib.util
from collections.abc import Iterable
from pathlib import Path

from tests.architecture.source_tree import ROOT, imported_modules, name_of, offences_in, python_files, tree_of

OPEN = {"app", "cli", "core", "starter", "testing"}
"""Packages without checked exports: the modules of `core` are imported directly; nothing imports `app`, `cli` and `testing`."""
WHOLE_PRODUCT = ("architecture", "bench", "chaos", "journeys", "redteam", "screenshots", "snapshots.py", "upgrade")
"""Tests of the whole product, which can import anything."""
SHARED = {
    "tests/agents/hostile/trap.py": {"governance"},
    "tests/agents/stepping.py": {"processes"},
    "tests/agents/test_page.py": {"api"},
    "tests/agents/test_runs.py": {"governance"},
    "tests/api/test_addresses.py": {"sites"},
    "tests/api/test_spent_keys.py": {"sites", "tenants"},
    "tests/cli/test_translation.py": {"console"},
    "tests/console/pages/operate/test_timeline.py": {"processes"},
    "tests/governance/policies/test_replay.py": {"integrations"},
    "tests/governance/test_approvals.py": {"console"},
    "tests/monitor/test_api.py": {"api"},
    "tests/processes/test_route_files_crash.py": {"sites"},
    "tests/sites/test_acme.py": {"webapps"},
    "tests/sites/test_orders.py": {"webapps"},
    "tests/sites/test_smoke.py": {"webapps"},
    "tests/solutions/test_reset_elsewhere.py": {"backups"},
    "tests/solutions/test_reset_jobs.py": {"backups"},
    "tests/solutions/test_reset_requests.py": {"backups", "web"},
    "tests/solutions/test_reset_steps.py": {"backups"},
    "tests/solutions/test_resetting.py": {"backups"},
    "tests/webapps/test_traffic.py": {"sites"},
}
"""Tests of two rooms together, and the other rooms whose private names they can import."""


@functools.cache
def rooms() -> frozenset[str]:
    packages = (path.parent.name for path in (ROOT / "appliance").glob("*/__init__.py"))
    return frozenset(packages) - OPEN


@functools.cache
def exports(package: str) -> frozenset[str]:
    """The `__all__` of a package; empty when it has none, or is a module."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return frozenset()
    return frozenset(getattr(importlib.import_module(package), "__all__", ()))


def exported_name(name: str) -> str | None:
    """The export through which `appliance.room.thing.member` can be imported, or None."""
    parts = name.split(".")
    for length in range(2, len(parts)):
        if parts[length] in exports(".".join(parts[:length])):
            return ".".join(parts[: length + 1])
    return None


def room_imports(path: Path, tree: ast.AST) -> Iterable[tuple[int, str, str]]:
    """Line, room and dotted name of what a file imports from other rooms."""
    for line, name in imported_modules(tree):
        package, _, rest = name.partition(".")
        room = rest.partition(".")[0]
        if package == "appliance" and room in rooms() and not name_of(path).startswith(f"appliance/{room}/"):
            yield line, room, name


def find_private_imports(path: Path, tree: ast.AST) -> list[str]:
    """Imports of names that a room does not export, in a file outside the room and its tests."""
    file = name_of(path)
    if file.startswith(tuple(f"tests/{suite}" for suite in WHOLE_PRODUCT)):
        return []
    offences = []
    for line, room, name in room_imports(path, tree):
        inside = name.split(".")[2:]
        stored = file.startswith("tests/") and "models" in inside  # a test that looks at what was stored reads the table
        own = file.startswith(f"tests/{room}/") or room in SHARED.get(file, ())
        if inside and not own and not stored and exported_name(name) is None:
            offences.append(f"line {line} imports {name}")
    return offences


def test_packages_are_imported_through_their_exports() -> None:
    assert len(rooms()) >= 20
    files = python_files("appliance", "tests", "plugins", "packaging")
    assert offences_in(files, lambda path: find_private_imports(path, tree_of(path))) == {}


def test_every_export_of_a_package_is_used() -> None:
    files = python_files("appliance", "tests", "plugins")
    used = {name for path in files for _, _, name in room_imports(path, tree_of(path))}
    exported = {exported_name(name) for name in used}
    packages = [".".join(path.parent.relative_to(ROOT).parts) for path in python_files("appliance") if path.name == "__init__.py"]
    unused = {
        f"{package}.{name}"
        for package in packages
        if package.split(".")[1:2] and package.split(".")[1] in rooms() and package not in used  # imported whole: as `conditions`
        for name in exports(package)
    }
    assert unused - exported == set()


def test_a_private_import_is_found() -> None:
    source = ast.parse(
        "from appliance.formats import Formats, preloading\n"
        "from appliance.formats.rows import scalar_text\n"
        "from appliance.connectors.contract import Connector\n"
        "from appliance.monitor.models import AuditEntry\n"
    )
    assert find_private_imports(ROOT / "tests/documents/test_x.py", source) == [
        "line 1 imports appliance.formats.preloading",
        "line 2 imports appliance.formats.rows.scalar_text",
    ]
    assert "line 4 imports appliance.monitor.models.AuditEntry" in find_private_imports(ROOT / "appliance/documents/x.py", source)
    assert find_private_imports(ROOT / "tests/formats/test_x.py", source) == []
