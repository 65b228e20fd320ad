"""Renames a file of a draft and the steps that refer to it; comments in the definition's YAML stay."""

import re
from collections.abc import Mapping
from typing import Any

from appliance.core import yaml12
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence

from .versions import Draft

# Where a step refers to a file: the kind and its member.
FILE_MEMBERS = (("code", "file"), ("rule", "decision"))


def rename_file(draft: Draft, path: str, target: str) -> Draft:
    """The draft with the file renamed; ValidationFailed if the YAML text cannot be changed to match."""
    files = {(target if name == path else name): text for name, text in draft.files.items()}
    definition = _replace_path(draft.definition, path, target)
    if not draft.source or definition == draft.definition:
        return Draft(definition, files, draft.source)
    source = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w./-])", lambda _: target, draft.source)
    try:
        parsed = yaml12.load(source)
    except yaml12.YamlInvalid:
        parsed = None
    if not isinstance(parsed, dict) or {"id": definition.get("id"), **parsed} != definition:
        message = Sentence(
            "process.yaml refers to %(path)s in a way that cannot be changed here; change it there first, then rename the file",
            path=path,
        )
        raise ValidationFailed(message, pointer="/to")
    return Draft(definition, files, source)


def _replace_path(value: Any, path: str, target: str) -> Any:
    """The definition with every reference to the file replaced by the new path."""
    if isinstance(value, list):
        return [_replace_path(each, path, target) for each in value]
    if not isinstance(value, Mapping):
        return value
    changed = {name: _replace_path(each, path, target) for name, each in value.items()}
    for kind, member in FILE_MEMBERS:
        settings = changed.get(kind)
        if isinstance(settings, Mapping) and settings.get(member) == path:
            changed[kind] = {**settings, member: target}
    return changed
