"""The rules of a version, of its settings and of its `_redirects` and `_headers`, parsed once and stored with it."""

from collections.abc import Callable, Mapping
from typing import Any

from appliance.blobs import Blobs
from appliance.core.errors import DefinitionInvalid, Detail, PayloadTooLarge, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.webapps.records import FileSpec, Settings

from . import headers, redirects

RULE_FILES = ("_redirects", "_headers")
LARGEST_FILE = 1 << 20


def read_rule_file(scope: TenantScope, blobs: Blobs, files: Mapping[str, FileSpec], name: str) -> str:
    """The text of a rule file of a version, empty when there is none; ValidationFailed."""
    if name not in files:
        return ""
    try:
        return blobs.read_whole(scope, files[name].sha256, LARGEST_FILE).decode("utf-8-sig")
    except (UnicodeDecodeError, PayloadTooLarge) as error:
        raise ValidationFailed(
            Sentence("%(name)s must be UTF-8 text of at most %(largest_file)s MiB", name=name, largest_file=LARGEST_FILE >> 20),
            pointer=f"/files/{name}",
        ) from error


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
        count = Sentence("%(problems)s problems, the first: ", problems=len(problems)) if len(problems) > 1 else ""
        raise DefinitionInvalid(
            Sentence("the rules are not valid; %(count)s%(message)s", count=count, message=problems[0].message), details=problems
        )
    return {"redirects": redirects.to_json(moved), "headers": headers.to_json(told)}
