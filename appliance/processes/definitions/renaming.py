"""Another path for a file of a draft: the steps that name it follow, comments in the definition's text stay."""

import re
from collections.abc import Mapping
from typing import Any

from appliance.core import yaml12
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence

from .versions import Draft

# What a step may name a file by: the kind and the member of it.
NAMED = (("code", "file"), ("rule", "decision"))


def rename_file(draft: Draft, path: str, target: str) -> Draft:
    """The draft with the file under its new path; ValidationFailed where the definition's text cannot be changed alike."""
    files = {(target if name == path else name): text for name, text in draft.files.items()}
    definition = _renamed(draft.definition, path, target)
    if not draft.source or definition == draft.definition:
        return Draft(definition, files, draft.source)
    source = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w./-])", lambda _: target, draft.source)
    try:
        read = yaml12.load(source)
    except yaml12.YamlInvalid:
        read = None
    if not isinstance(read, dict) or {"id": definition.get("id"), **read} != definition:
        message = Sentence(
            "process.yaml names %(path)s in a way that cannot be changed here; change it there first, and rename the file then",
            path=path,
        )
        raise ValidationFailed(message, pointer="/to")
    return Draft(definition, files, source)


def _renamed(value: Any, path: str, target: str) -> Any:
    """The definition with every step that names the file naming the new path."""
    if isinstance(value, list):
        return [_renamed(each, path, target) for each in value]
    if not isinstance(value, Mapping):
        return value
    changed = {name: _renamed(each, path, target) for name, each in value.items()}
    for kind, member in NAMED:
        given = changed.get(kind)
        if isinstance(given, Mapping) and given.get(member) == path:
            changed[kind] = {**given, member: target}
    return changed
