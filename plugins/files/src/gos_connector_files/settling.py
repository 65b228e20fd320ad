"""The trigger `new_files`: reports a file once two consecutive polls see the same version of it."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from appliance.connectors.contract import Item, Json, Polled, Rejected
from gos_connector_files.declaration import MOST_WATCHED
from gos_connector_files.store import Entry, is_draft

MOST_AT_ONCE = 200


def new_files(entries: Sequence[Entry], query: Json, cursor: Any) -> Polled:
    """Return the files that stopped growing since `cursor`, which holds the versions of `seen` and still `growing` files."""
    pattern = query.get("pattern", "*")
    files = [each for each in entries if each.kind == "file" and not is_draft(each.name)]
    matches = {each.path: each for each in files if fnmatchcase(each.name, pattern)}
    if len(matches) > MOST_WATCHED:
        raise Rejected(
            f"The folder contains more than {MOST_WATCHED} matching files; move processed files elsewhere, or narrow `pattern`.",
            details={"files": len(matches)},
        )
    if cursor is None and query.get("begin", "now") == "now":
        return Polled((), {"seen": _versions(matches, matches), "growing": {}})
    seen: Mapping[str, str] = cursor["seen"] if cursor else {}
    growing: Mapping[str, str] = cursor["growing"] if cursor else {}
    changed = [path for path, each in matches.items() if seen.get(path) != each.version]
    settled = sorted((path for path in changed if growing.get(path) == matches[path].version), key=lambda path: _age(matches[path]))
    batch = settled[:MOST_AT_ONCE]
    reported = {path: seen[path] for path in matches if path in seen} | _versions(matches, batch)
    waiting = _versions(matches, [path for path in changed if path not in set(batch)])
    items = [Item(f"{path}@{matches[path].version}", matches[path].to_view()) for path in batch]
    return Polled(items, {"seen": reported, "growing": waiting}, more=len(settled) > len(batch))


def _versions(entries: Mapping[str, Entry], paths: Any) -> dict[str, str]:
    return {path: entries[path].version for path in paths}


def _age(entry: Entry) -> tuple[float, str]:
    return entry.modified or 0.0, entry.path
