"""Parses the rules of a version from its settings, `_redirects` and `_headers`; they are stored with the version."""

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
    """The text of a rule file, or an empty string when it does not exist; ValidationFailed."""
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
    """Parse all rules; `read` returns the text of a rule file, or an empty string. DefinitionInvalid lists every invalid line."""
    problems: list[Detail] = []
    redirect_rules: list[redirects.Redirect] = []
    header_rules: list[headers.HeaderRule] = []
    for text, name in ((settings.redirects, "redirects"), (read("_redirects"), "_redirects")):
        rules, errors = redirects.parse_redirects(text, name)
        redirect_rules += rules
        problems += errors
    for text, name in ((settings.headers, "headers"), (read("_headers"), "_headers")):
        rules_of_file, errors = headers.parse_headers(text, name)
        header_rules += rules_of_file
        problems += errors
    if problems:
        count = Sentence("%(problems)s problems; the first is: ", problems=len(problems)) if len(problems) > 1 else ""
        raise DefinitionInvalid(
            Sentence("the rules are not valid; %(count)s%(message)s", count=count, message=problems[0].message), details=problems
        )
    return {"redirects": redirects.to_json(redirect_rules), "headers": headers.to_json(header_rules)}
