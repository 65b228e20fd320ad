"""Calls of $api in PHP that name something beyond the grants: found by their literal names, without running or parsing PHP."""

import re
from collections.abc import Iterator

from .nodes import Grants

Missing = tuple[str, str, str]
# Strings are kept, for names stand in them; comments become blanks, so that every position stays.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|(?P<comment>/\*.*?(?:\*/|\Z)|//[^\n]*|\#(?!\[)[^\n]*)", re.DOTALL)
_NAME = r"(?:'([^'\\$]*)'|\"([^\"\\$]*)\")"
_CALL = re.compile(rf"->\s*(\w+)\s*->\s*(\w+)\s*\(\s*(?:{_NAME}\s*(?=[,)])(?:,\s*{_NAME}\s*(?=[,)]))?)?", re.ASCII)
_ACCESS = {"find": "read", "query": "read", "create": "write", "update": "write", "upsert": "write", "delete": "write"}


def find_missing(source: str, grants: Grants) -> Iterator[tuple[int, int, Missing]]:
    """Line, column and what is missing, for every call beyond `grants`."""
    text = _TOKEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]) if found["comment"] else found[0], source)
    for call in _CALL.finditer(text):
        missing = _missing(call, grants)
        if missing is not None:
            begin = call.start(1)
            yield text.count("\n", 0, begin) + 1, begin - text.rfind("\n", 0, begin), missing


def _missing(call: re.Match[str], grants: Grants) -> Missing | None:
    space, method = call[1], call[2]
    first = call[3] if call[3] is not None else call[4]
    second = call[5] if call[5] is not None else call[6]
    if (space, method) == ("human", "request"):
        return None if grants.human else ("human", "", "")
    if space == "documents" and method in ("get", "read", "create"):
        access = "write" if method == "create" else "read"
        return None if access in grants.documents else ("documents", "", access)
    if first is None:
        return None
    if (space, method) == ("integrations", "execute"):
        granted = first in grants.integrations and (second is None or grants.allows_action(first, second))
        return None if granted else ("integrations", first, second or "")
    if space == "datapool" and method in _ACCESS:
        return None if grants.allows_data(first, _ACCESS[method]) else ("datapool", first, _ACCESS[method])
    named = {("secrets", "get"): grants.secrets, ("processes", "execute"): grants.processes}.get((space, method))
    return None if named is None or first in named else (space, first, "")
