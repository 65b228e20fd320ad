"""Development mode: detects changed files of editable plugins and YAML connectors, and reloads them."""

import importlib
import json
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from appliance.connectors.registry import GROUP, Registry, load_registry

Stamp = dict[Path, tuple[int, int]]


class Watch:
    """Detects changes to connector files; not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()

    def changed(self) -> Registry | None:
        """Return the registry with changed connectors reloaded; None when nothing has changed.

        Classes of unchanged plugins are kept; existing instances of reloaded classes keep working until they are released.
        """
        now = self._look()
        if now == self._seen:
            return None
        before, self._seen = self._seen, now
        for name in set(before) | set(now):
            if before.get(name) != now.get(name) and name:
                _forget(name, [*before.get(name, {}), *now.get(name, {})])
        return load_registry(folder=self._folder)

    def _look(self) -> dict[str, Stamp]:
        """Return the files by package; the YAML files have the empty name."""
        stamps = {name: _stamp(folder.rglob("*.py")) for name, folder in _editable_packages()}
        return {"": _stamp(self._folder.glob("*.yaml")), **stamps}


def _stamp(files: Iterator[Path]) -> Stamp:
    stamp: Stamp = {}
    for file in files:
        try:
            status = file.stat()
        except FileNotFoundError:  # an editor is replacing the file; the next check sees it
            continue
        stamp[file] = (status.st_mtime_ns, status.st_size)
    return stamp


def _editable_packages() -> Iterator[tuple[str, Path]]:
    """Yield the name and folder of every plugin package installed in editable mode (PEP 610)."""
    for point in entry_points(group=GROUP):
        name = point.module.partition(".")[0]
        if not _is_editable(point):
            continue
        spec = find_spec(name)
        for place in (spec.submodule_search_locations if spec else None) or ():
            yield name, Path(place)


def _is_editable(point: EntryPoint) -> bool:
    try:
        text = point.dist.read_text("direct_url.json") if point.dist else None
        return bool(text) and json.loads(text or "{}").get("dir_info", {}).get("editable") is True
    except (PackageNotFoundError, ValueError):
        return False


def _forget(package: str, files: list[Path]) -> None:
    """Make the next import read the files again.  Bytecode files are deleted because their timestamps have whole seconds only."""
    for file in files:
        Path(cache_from_source(str(file))).unlink(missing_ok=True)
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
    importlib.invalidate_caches()
