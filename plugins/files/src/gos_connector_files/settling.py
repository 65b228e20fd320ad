"""The trigger `new_files`: a file counts when two polls in a row have found it the same."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from appliance.connectors.contract import Item, Json, Polled, Rejected
from gos_connector_files.declaration import MOST_WATCHED
from gos_connector_files.store import Entry, is_draft

MOST_AT_ONCE = 200


def new_files(entries: Sequence[Entry], query: Json, cursor: Any) -> Polled:
    """What has settled since `cursor`, which holds the version of each file as `seen` or still `growing`."""
    pattern = query.get("pattern", "*")
    files = [each for each in entries if each.kind == "file" and not is_draft(each.name)]
    found = {each.path: each for each in files if fnmatchcase(each.name, pattern)}
    if len(found) > MOST_WATCHED:
        raise Rejected(
            f"The folder holds more than {MOST_WATCHED} such files; move away what is done, or narrow `pattern`.",
            details={"files": len(found)},
        )
    if cursor is None and query.get("begin", "now") == "now":
        return Polled((), {"seen": _versions(found, found), "growing": {}})
    seen: Mapping[str, str] = cursor["seen"] if cursor else {}
    growing: Mapping[str, str] = cursor["growing"] if cursor else {}
    fresh = [path for path, each in found.items() if seen.get(path) != each.version]
    settled = sorted((path for path in fresh if growing.get(path) == found[path].version), key=lambda path: _age(found[path]))
    taken = settled[:MOST_AT_ONCE]
    known = {path: seen[path] for path in found if path in seen} | _versions(found, taken)
    waiting = _versions(found, [path for path in fresh if path not in set(taken)])
    items = [Item(f"{path}@{found[path].version}", found[path].told()) for path in taken]
    return Polled(items, {"seen": known, "growing": waiting}, more=len(settled) > len(taken))


def _versions(found: Mapping[str, Entry], paths: Any) -> dict[str, str]:
    return {path: found[path].version for path in paths}


def _age(entry: Entry) -> tuple[float, str]:
    return entry.modified or 0.0, entry.path
