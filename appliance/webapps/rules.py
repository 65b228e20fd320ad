"""The rules of a version, of its settings and of its `_redirects` and `_headers`, parsed once and stored with it."""

from collections.abc import Callable
from typing import Any

from appliance.core.errors import DefinitionInvalid, Detail

from . import headers, redirects
from .records import Settings

RULE_FILES = ("_redirects", "_headers")
LARGEST_FILE = 1 << 20


def parse_rules(settings: Settings, read: Callable[[str], str]) -> dict[str, Any]:
    """`read` gives the text of a rule file, empty when there is none; DefinitionInvalid lists every line that is wrong."""
    problems: list[Detail] = []
    moved: list[redirects.Redirect] = []
    told: list[headers.HeaderRule] = []
    for text, name in ((settings.redirects, "redirects"), (read("_redirects"), "_redirects")):
        rules, wrong = redirects.parse_redirects(text, name)
        moved += rules
        problems += wrong
    for text, name in ((settings.headers, "headers"), (read("_headers"), "_headers")):
        found, wrong = headers.parse_headers(text, name)
        told += found
        problems += wrong
    if problems:
        count = f"{len(problems)} problems, the first: " if len(problems) > 1 else ""
        raise DefinitionInvalid(f"the rules are not valid; {count}{problems[0].message}", details=problems)
    return {"redirects": redirects.to_json(moved), "headers": headers.to_json(told)}
