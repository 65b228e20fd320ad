"""Parses the `_headers` file in Netlify's format: a path, followed by indented headers for it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.core.errors import Detail
from appliance.core.sentences import Sentence

from . import patterns

MOST_RULES = 500
# Headers that the server sets itself, or whose effect reaches beyond the app.
RESERVED = frozenset(
    {
        "accept-ranges", "age", "allow", "alt-svc", "connection", "content-encoding", "content-length", "content-range", "date",
        "etag", "keep-alive", "last-modified", "location", "server", "set-cookie", "strict-transport-security", "trailer",
        "transfer-encoding", "upgrade", "vary", "www-authenticate", "x-request-id",
    }
)  # fmt: skip
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")


@dataclass
class HeaderRule:
    """The headers of matching paths; names in lower case."""

    source: str
    headers: dict[str, str] = field(default_factory=dict)


def parse_headers(text: str, file: str = "_headers") -> tuple[list[HeaderRule], list[Detail]]:
    """The rules in order, and the problems with their line numbers."""
    rules: list[HeaderRule] = []
    problems: list[Detail] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        problem = _add_header(rules, line.strip()) if line[0] in " \t" else _add_path(rules, line.strip())
        if problem:
            problems.append(
                Detail(
                    f"/files/{file}",
                    "header_invalid",
                    Sentence("%(file)s line %(number)s: %(wrong)s", file=file, number=number, wrong=problem),
                )
            )
    if len(rules) > MOST_RULES:
        problems.append(
            Detail(
                f"/files/{file}",
                "header_invalid",
                Sentence("%(file)s has more than %(most_rules)s paths", file=file, most_rules=MOST_RULES),
            )
        )
    return rules, problems


def _add_path(rules: list[HeaderRule], line: str) -> str | None:
    problem = patterns.problem_of(line)
    if line.lower().startswith(("http://", "https://")):
        problem = "rules for a whole domain are not supported; begin with a path"
    rules.append(HeaderRule(line if problem is None else "/"))
    return problem


def _add_header(rules: list[HeaderRule], line: str) -> str | None:
    name, colon, value = (part.strip() for part in line.partition(":"))
    lower = name.lower()
    if not rules:
        return "a header must follow the path it applies to"
    if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        return f"{line[:60]!r} is not a header such as `X-Frame-Options: DENY`"
    if lower == "basic-auth":
        return "Basic-Auth is not supported; remove the line"
    if lower in RESERVED:
        return f"the header {name} is set by the server; remove it"
    headers = rules[-1].headers
    headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    return None


def to_json(rules: Sequence[HeaderRule]) -> list[dict[str, object]]:
    return [{"source": rule.source, "headers": rule.headers} for rule in rules]


def headers_for(rules: Sequence[Mapping[str, object]], path: str) -> dict[str, str]:
    """Every header for this path; when several rules set a header, the last one wins."""
    headers: dict[str, str] = {}
    for rule in rules:
        if patterns.match(str(rule["source"]), path) is not None:
            headers.update(rule["headers"])  # type: ignore[call-overload]  # written by `to_json`
    return headers
