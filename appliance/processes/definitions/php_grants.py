"""Finds calls of $api in PHP that exceed the grants, by their literal names, without running or parsing PHP."""

import re
from collections.abc import Iterator

from .nodes import Grants

MissingGrant = tuple[str, str, str]
# Strings stay because they contain the names; comments are blanked, so that positions do not change.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|(?P<comment>/\*.*?(?:\*/|\Z)|//[^\n]*|\#(?!\[)[^\n]*)", re.DOTALL)
_NAME = r"(?:'([^'\\$]*)'|\"([^\"\\$]*)\")"
_CALL = re.compile(rf"->\s*(\w+)\s*->\s*(\w+)\s*\(\s*(?:{_NAME}\s*(?=[,)])(?:,\s*{_NAME}\s*(?=[,)]))?)?", re.ASCII)
_ACCESS = {"find": "read", "query": "read", "create": "write", "update": "write", "upsert": "write", "delete": "write"}


def find_missing_grants(source: str, grants: Grants) -> Iterator[tuple[int, int, MissingGrant]]:
    """Line, column and the missing grant of every call that exceeds `grants`."""
    text = _TOKEN.sub(lambda token: re.sub(r"[^\n]", " ", token[0]) if token["comment"] else token[0], source)
    for call in _CALL.finditer(text):
        missing = _missing_grant(call, grants)
        if missing is not None:
            begin = call.start(1)
            yield text.count("\n", 0, begin) + 1, begin - text.rfind("\n", 0, begin), missing


def _missing_grant(call: re.Match[str], grants: Grants) -> MissingGrant | None:
    namespace, method = call[1], call[2]
    first = call[3] if call[3] is not None else call[4]
    second = call[5] if call[5] is not None else call[6]
    if (namespace, method) == ("human", "request"):
        return None if grants.human else ("human", "", "")
    if namespace == "documents" and method in ("get", "read", "create"):
        access = "write" if method == "create" else "read"
        return None if access in grants.documents else ("documents", "", access)
    if first is None:
        return None
    if (namespace, method) == ("integrations", "execute"):
        granted = first in grants.integrations and (second is None or grants.allows_action(first, second))
        return None if granted else ("integrations", first, second or "")
    if namespace == "datapool" and method in _ACCESS:
        return None if grants.allows_data(first, _ACCESS[method]) else ("datapool", first, _ACCESS[method])
    granted_names = {("secrets", "get"): grants.secrets, ("processes", "execute"): grants.processes}.get((namespace, method))
    return None if granted_names is None or first in granted_names else (namespace, first, "")
