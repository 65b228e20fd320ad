"""For development: notices changed files of editable plugins and of the folder of YAML files, and loads them anew."""

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
    """Remembers how the files of connectors looked; not safe to ask from two threads at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()

    def changed(self) -> Registry | None:
        """The registry with what has changed loaded anew; None when nothing has.

        Classes of unchanged plugins stay the same ones; what was made from the old classes lives on until it is let go.
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
        """The files by the package they belong to; those of the folder under the empty name."""
        found = {name: _stamp(folder.rglob("*.py")) for name, folder in _editable_packages()}
        return {"": _stamp(self._folder.glob("*.yaml")), **found}


def _stamp(files: Iterator[Path]) -> Stamp:
    made: Stamp = {}
    for file in files:
        try:
            status = file.stat()
        except FileNotFoundError:  # an editor replaces it just now: the next look sees it
            continue
        made[file] = (status.st_mtime_ns, status.st_size)
    return made


def _editable_packages() -> Iterator[tuple[str, Path]]:
    """Name and folder of every plugin's package that is installed to be edited where it lies (PEP 610)."""
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
    """Have the next import read the files.  Compiled ones are told apart by whole seconds only, so they go."""
    for file in files:
        Path(cache_from_source(str(file))).unlink(missing_ok=True)
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
    importlib.invalidate_caches()
