"""Path patterns of `_redirects` and `_headers`: `/blog/:year/*`; a placeholder is one part, a star the rest."""

import re
from collections.abc import Mapping
from functools import lru_cache

_NAME = re.compile(r":([A-Za-z_][A-Za-z0-9_]*)")


def problem_of(pattern: str) -> str | None:
    """What is wrong with a pattern; None when nothing is."""
    if not pattern.startswith("/"):
        return "a path begins with /"
    if "*" in pattern[:-1] or (pattern.endswith("*") and not pattern.endswith("/*")):
        return "* stands alone at the end, after a /"
    names = _NAME.findall(pattern)
    if len(names) != len(set(names)) or any(part.startswith(":") and not _NAME.fullmatch(part) for part in pattern.split("/")):
        return "a placeholder is a whole part of the path, such as :year, and comes once"
    if "splat" in names and pattern.endswith("/*"):
        return ":splat is what the * at the end stands for; call the placeholder something else"
    return None


@lru_cache(4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern as an expression that takes no more than one look at each letter."""
    given = pattern.removesuffix("/*").split("/")
    parts = [f"(?P<{part[1:]}>[^/]+)" if _NAME.fullmatch(part) else re.escape(part) for part in given]
    end = "(?:/(?P<splat>.*))?" if pattern.endswith("/*") else "/?"
    return re.compile("/".join(parts).rstrip("/") + end, re.DOTALL)


def match(pattern: str, path: str) -> Mapping[str, str] | None:
    """What the placeholders (and `splat`) stand for, or None when the path is another."""
    found = compiled(pattern).fullmatch(path)
    return None if found is None else {name: value or "" for name, value in found.groupdict().items()}


def fill(target: str, values: Mapping[str, str]) -> str:
    """The target with its placeholders replaced; an unknown one stays as it is."""
    return _NAME.sub(lambda found: values.get(found[1], found[0]), target)
