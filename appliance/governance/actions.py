"""Canonical forms of actions: one text, and one digest, for what would be done, by whom, with what and under which rules.

The text is JSON as RFC 8785 has it.  Values that it cannot distinguish, or refuses, become tagged strings:
`gos:int:` and hexadecimal digits for integers beyond 2^53 - 1, `gos:float:` for floats without a fraction (RFC 8785 writes
1.0 as 1), infinities and NaN, `gos:utf8:` and hexadecimal digits for strings with half a surrogate pair, `gos:text:` for a
string that itself begins with `gos:`.  So two actions have the same text only if they are the same action, and an action can
be restored from its text.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import rfc8785

from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import SkillUsed, Subject
from appliance.monitor import storable_json, storable_text

FORM = 1
_TAG = "gos:"
_LARGEST = 2**53 - 1
_MAX_VALUE_CHARACTERS, _MAX_MEMBERS, _SUMMARY_BYTES = 80, 12, 2_000
_INPUT_BYTES = 4 << 20


@dataclass(frozen=True)
class Canonical:
    """An action's canonical text and its SHA-256 in hexadecimal digits."""

    text: str
    digest: str


@dataclass(frozen=True)
class StoredAction:
    """An action as it was requested; `version` names the policy set that was evaluated then."""

    approval_id: str
    canonical: Canonical
    subject: Subject
    action: ToolAction
    version: str


def canonical_action(scope: TenantScope, subject: Subject, action: ToolAction, version: str) -> Canonical:
    """The canonical form of an action requested by this subject under this version of the policies.

    It excludes the edge the request came by and the run's taint: neither changes what would be done.
    ValidationFailed if the input contains a value that is not JSON.
    """
    content = {
        "form": FORM,
        "tenant": scope.tenant_id,
        "tool": action.tool,
        "effect": action.effect,
        "integration": action.integration,
        "operation": action.operation,
        "connector": action.connector,
        "host": action.host,
        "credential": action.credential,
        "input": dict(action.input),
        "policy": version,
        "actor": subject.actor,
        "agent": subject.agent,
        "run": subject.run_id,
        "skills": sorted([each.name, each.digest] for each in subject.skills),
    }
    try:
        text = rfc8785.dumps(_tag(content))
    except RecursionError as error:
        raise ValidationFailed("the input of the action is nested too deeply to be approved", pointer="/input") from error
    return Canonical(text.decode(), hashlib.sha256(text).hexdigest())


def read_action(text: str) -> tuple[Subject, ToolAction, str]:
    """Restore what `canonical_action` was called with, and the version; the subject's edge and taint are not part of the text."""
    content = _untag(json.loads(text))
    skills = tuple(SkillUsed(name, digest) for name, digest in content["skills"])
    subject = Subject(content["actor"], "rest", content["agent"], content["run"], skills)
    names = ("tool", "effect", "input", "integration", "operation", "connector", "host", "credential")
    return subject, ToolAction(**{name: content[name] for name in names}), content["policy"]


def find_changes(approved: str, presented: str) -> list[str]:
    """The names of the members in which two canonical actions differ, sorted."""
    one, other = json.loads(approved), json.loads(presented)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _tag(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_LARGEST <= value <= _LARGEST else f"{_TAG}int:{value:x}"
    if isinstance(value, float):
        return f"{_TAG}float:{value!r}" if not math.isfinite(value) or value.is_integer() else value
    if isinstance(value, str):
        return _tag_text(value)
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise ValidationFailed("the member names of an input must be strings", pointer="/input")
        return {_tag_text(name): _tag(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tag(item) for item in value]
    raise ValidationFailed(Sentence("an input must be JSON, which has no %(name)s", name=type(value).__name__), pointer="/input")


def _tag_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{_TAG}utf8:{text.encode('utf8', 'surrogatepass').hex()}"
    return f"{_TAG}text:{text}" if text.startswith(_TAG) else text


def _untag(value: Any) -> Any:
    if isinstance(value, dict):
        return {_untag(name): _untag(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_untag(item) for item in value]
    if not isinstance(value, str) or not value.startswith(_TAG):
        return value
    _, kind, rest = value.split(":", 2)
    if kind == "int":
        return int(rest, 16)
    if kind == "float":
        return float(rest)
    return rest if kind == "text" else bytes.fromhex(rest).decode("utf8", "surrogatepass")


# -- as people read it


def action_label(action: ToolAction) -> str:
    """A short name of the action: `create of orders`."""
    return printable(f"{action.operation} of {action.integration}" if action.integration else action.tool)


def summarize_action(action: ToolAction) -> str:
    """One sentence that describes the action; secrets are redacted and invisible characters escaped."""
    does = {"read": "reads", "write": "writes", "idempotent": "writes, safe to repeat"}.get(action.effect, action.effect)
    parts = [action_label(action), f"({action.connector})" if action.connector else "", f"at {action.host}" if action.host else ""]
    redacted = json.loads(storable_json(action.input, _INPUT_BYTES))
    members = [f"{name} = {_brief(item)}" for name, item in list(redacted.items())[:_MAX_MEMBERS]]
    if len(redacted) > _MAX_MEMBERS:
        members.append(f"and {len(redacted) - _MAX_MEMBERS} more")
    sentence = f"{' '.join(part for part in parts if part)}, which {does}: {', '.join(members) or 'no input'}"
    return storable_text(printable(sentence), _SUMMARY_BYTES)


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}…"


def printable(text: str) -> str:
    """The text with invisible characters and those that change the text direction escaped."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
