"""Parses the `_redirects` file in Netlify's format: `from [name=:value …] to [status][!]`, one rule per line."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from appliance.core.errors import Detail
from appliance.core.sentences import Sentence

from . import patterns

MOST_RULES = 1000
STATUSES = (200, 301, 302, 303, 307, 308, 404, 410)
_STATUS = re.compile(r"(\d{3})(!?)")
_QUERY = re.compile(r"([A-Za-z0-9_.-]+)=:([A-Za-z_][A-Za-z0-9_]*)")
_CONDITION = re.compile(r"(Country|Language|Role|Cookie)=", re.IGNORECASE)
_URL = re.compile(r"https?://[^/\s]+", re.IGNORECASE)


@dataclass(frozen=True)
class Redirect:
    """One rule. `force` applies it even where the version has a file; `query` lists required query parameters."""

    source: str
    target: str
    status: int = 301
    force: bool = False
    query: Mapping[str, str] | None = None

    def applies(self, path: str, query_values: Mapping[str, str]) -> str | None:
        """The target for a request, or None when the rule does not match."""
        values = patterns.match(self.source, path)
        if values is None or not (self.query or {}).keys() <= query_values.keys():
            return None
        values_to_fill = {**values, **{name: query_values[key] for key, name in (self.query or {}).items()}}
        target = patterns.fill(self.target, {name: quote(value, safe="/@:~!$'()*,;=+") for name, value in values_to_fill.items()})
        # Two leading slashes would redirect to another host.
        return f"/{target.lstrip('/')}" if self.target.startswith("/") else target


def parse_redirects(text: str, file: str = "_redirects") -> tuple[list[Redirect], list[Detail]]:
    """The rules in order, and the problems with their line numbers."""
    rules: list[Redirect] = []
    problems: list[Detail] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = re.split(r"\s#", f" {line}", maxsplit=1)[0].split()
        if not words:
            continue
        result = _parse_line(words)
        if isinstance(result, Redirect):
            rules.append(result)
        else:
            problems.append(
                Detail(
                    f"/files/{file}",
                    "redirect_invalid",
                    Sentence("%(file)s line %(number)s: %(found)s", file=file, number=number, found=result),
                )
            )
    if len(rules) > MOST_RULES:
        problems.append(
            Detail(
                f"/files/{file}",
                "redirect_invalid",
                Sentence("%(file)s has more than %(most_rules)s rules", file=file, most_rules=MOST_RULES),
            )
        )
    return rules, problems


def _parse_line(words: Sequence[str]) -> Redirect | str:
    source, *rest = words
    if _URL.match(source):
        return "rules for a whole domain are not supported; begin with a path"
    if problem := patterns.problem_of(source):
        return problem
    query: dict[str, str] = {}
    while rest and (match := _QUERY.fullmatch(rest[0])):
        query[match[1]] = match[2]
        rest = rest[1:]
    if not rest:
        return "a rule needs a source and a target"
    target, *rest = rest
    status, force = 301, False
    if rest and (match := _STATUS.fullmatch(rest[0])):
        status, force, rest = int(match[1]), match[2] == "!", rest[1:]
    if rest:
        name = _CONDITION.match(rest[0])
        if name:
            return f"the condition {name[1]} is not supported; remove it"
        return f"{rest[0][:60]!r} is not valid: a rule is `from to status`, such as `/old /new 301`"
    return _validate(Redirect(source, target, status, force, query or None))


def _validate(rule: Redirect) -> Redirect | str:
    is_external = bool(_URL.match(rule.target))
    if rule.status not in STATUSES:
        return f"the status {rule.status} is not one of {', '.join(map(str, STATUSES))}"
    if not is_external and (not rule.target.startswith("/") or rule.target.startswith("//") or "\\" in rule.target):
        return f"the target {rule.target[:60]!r} must be a path that begins with / or a URL with http:// or https://"
    if is_external and rule.status in (200, 404, 410):
        return "proxying to another host is not supported; redirect with 301 or 302"
    return rule


def to_json(rules: Sequence[Redirect]) -> list[dict[str, Any]]:
    return [asdict(rule) for rule in rules]


def from_json(data: Sequence[Mapping[str, Any]]) -> list[Redirect]:
    return [Redirect(**rule) for rule in data]
