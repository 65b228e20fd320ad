"""Resolves a path of a WebApp to a file, a redirect, or nothing. Pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from appliance.webapps import ServedVersion
from appliance.webapps.files import Redirect, from_json


@dataclass(frozen=True)
class FileMatch:
    """A file of the version, to be sent with this status."""

    path: str
    status: int = 200


@dataclass(frozen=True)
class Moved:
    """A redirect to another URL."""

    location: str
    status: int


class Resolver:
    """Resolves the paths of one version."""

    def __init__(self, version: ServedVersion) -> None:
        self._files = version.files
        self._spa = version.spa
        self._rules: list[Redirect] = from_json(version.rules.get("redirects", []))

    def resolve(self, path: str, query: Mapping[str, str]) -> FileMatch | Moved | None:
        """Apply the first matching rule (unforced rules only where no file exists), then look for a file, then for the page of
        a single-page app."""
        file = self._file(path)
        for rule in self._rules:
            if (rule.force or file is None) and (target := rule.applies(path, query)) is not None:
                return self._apply(rule, target)
        if file is not None:
            return file
        if self._spa and "." not in path.rpartition("/")[2] and "index.html" in self._files:
            return FileMatch("index.html")
        return None

    def has_file(self, path: str) -> bool:
        """Whether the version has a file at exactly this path."""
        return self._file(path) is not None

    def not_found_page(self) -> FileMatch | None:
        """The app's own page for missing paths."""
        return FileMatch("404.html", 404) if "404.html" in self._files else None

    def _apply(self, rule: Redirect, target: str) -> FileMatch | Moved | None:
        if rule.status not in (200, 404, 410):
            return Moved(target, rule.status)
        match = self._file(target.partition("?")[0])
        return FileMatch(match.path, rule.status) if isinstance(match, FileMatch) else None

    def _file(self, path: str) -> FileMatch | Moved | None:
        name = path.removeprefix("/")
        if path.endswith("/"):
            page = f"{name}index.html"
            return FileMatch(page) if page in self._files else None
        for candidate in (name, f"{name}.html"):
            if candidate in self._files:
                return FileMatch(candidate)
        if f"{name}/index.html" in self._files:
            return Moved(quote(path, safe="/@:~!$'()*,;=+") + "/", 301)
        return None
