"""The `_headers` file in Netlify's format: a path, and indented under it the headers of what lies there."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.core.errors import Detail
from appliance.core.sentences import Sentence

from . import patterns

MOST_RULES = 500
# What the server itself says, and what would reach beyond the app.
KEPT_BACK = frozenset(
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
    """Headers for the paths that fit; names in lower case."""

    source: str
    headers: dict[str, str] = field(default_factory=dict)


def parse_headers(text: str, file: str = "_headers") -> tuple[list[HeaderRule], list[Detail]]:
    """The rules in order, and what is wrong, with the line."""
    rules: list[HeaderRule] = []
    problems: list[Detail] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        wrong = _take_header(rules, line.strip()) if line[0] in " \t" else _take_path(rules, line.strip())
        if wrong:
            problems.append(
                Detail(
                    f"/files/{file}",
                    "header_invalid",
                    Sentence("%(file)s line %(number)s: %(wrong)s", file=file, number=number, wrong=wrong),
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


def _take_path(rules: list[HeaderRule], line: str) -> str | None:
    wrong = patterns.problem_of(line)
    if line.lower().startswith(("http://", "https://")):
        wrong = "rules for a whole domain are not offered by this release; begin with a path"
    rules.append(HeaderRule(line if wrong is None else "/"))
    return wrong


def _take_header(rules: list[HeaderRule], line: str) -> str | None:
    name, colon, value = (part.strip() for part in line.partition(":"))
    lower = name.lower()
    if not rules:
        return "a header stands under the path it is for"
    if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        return f"{line[:60]!r} is not a header such as `X-Frame-Options: DENY`"
    if lower == "basic-auth":
        return "passwords in this file are not offered by this release; leave the line out"
    if lower in KEPT_BACK:
        return f"the header {name} is the server's own; leave it out"
    headers = rules[-1].headers
    headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    return None


def to_json(rules: Sequence[HeaderRule]) -> list[dict[str, object]]:
    return [{"source": rule.source, "headers": rule.headers} for rule in rules]


def headers_for(rules: Sequence[Mapping[str, object]], path: str) -> dict[str, str]:
    """Every header for this path; of one that is named by several rules the last."""
    found: dict[str, str] = {}
    for rule in rules:
        if patterns.match(str(rule["source"]), path) is not None:
            found.update(rule["headers"])  # type: ignore[call-overload]  # as `to_json` writes it
    return found
