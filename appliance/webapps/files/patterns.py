"""Path patterns of `_redirects` and `_headers`, such as `/blog/:year/*`: a placeholder matches one segment, a star the rest."""

import re
from collections.abc import Mapping
from functools import lru_cache

_NAME = re.compile(r":([A-Za-z_][A-Za-z0-9_]*)")


def problem_of(pattern: str) -> str | None:
    """What is wrong with a pattern, or None."""
    if not pattern.startswith("/"):
        return "a path must begin with /"
    if "*" in pattern[:-1] or (pattern.endswith("*") and not pattern.endswith("/*")):
        return "* is allowed only at the end, after a /"
    names = _NAME.findall(pattern)
    if len(names) != len(set(names)) or any(part.startswith(":") and not _NAME.fullmatch(part) for part in pattern.split("/")):
        return "a placeholder must be a whole segment, such as :year, and can appear only once"
    if "splat" in names and pattern.endswith("/*"):
        return ":splat is reserved for the * at the end; rename the placeholder"
    return None


@lru_cache(4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern to a regular expression that matches in linear time."""
    segments = pattern.removesuffix("/*").split("/")
    parts = [f"(?P<{segment[1:]}>[^/]+)" if _NAME.fullmatch(segment) else re.escape(segment) for segment in segments]
    end = "(?:/(?P<splat>.*))?" if pattern.endswith("/*") else "/?"
    return re.compile("/".join(parts).rstrip("/") + end, re.DOTALL)


def match(pattern: str, path: str) -> Mapping[str, str] | None:
    """The values of the placeholders (and `splat`), or None when the path does not match."""
    match = compile_pattern(pattern).fullmatch(path)
    return None if match is None else {name: value or "" for name, value in match.groupdict().items()}


def fill(target: str, values: Mapping[str, str]) -> str:
    """The target with its placeholders replaced; unknown ones stay."""
    return _NAME.sub(lambda match: values.get(match[1], match[0]), target)
