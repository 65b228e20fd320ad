"""Actions written so that there is one text, and one digest, for what would be done, by whom, with what and under which rules.

The text is JSON as RFC 8785 has it.  What that format cannot tell apart, or refuses, is a text with a tag in front:
`gos:int:` and hexadecimal digits for integers beyond 2^53 - 1, `gos:float:` for floats without a fraction (RFC 8785 writes
1.0 as 1) and for those that are no numbers, `gos:utf8:` and hexadecimal digits for texts with half a surrogate pair,
`gos:text:` for a text that itself begins with `gos:`.  So two actions have one text only when they are the same action, and
the action is read back from its text.
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
_SHOWN_VALUE, _SHOWN_MEMBERS, _SUMMARY_BYTES = 80, 12, 2_000
_INPUT_BYTES = 4 << 20


@dataclass(frozen=True)
class Canonical:
    """An action's one text and the SHA-256 of it, in hexadecimal digits."""

    text: str
    digest: str


@dataclass(frozen=True)
class StoredAction:
    """An action as it was asked for; `version` names the policies that judged it then."""

    approval_id: str
    canonical: Canonical
    subject: Subject
    action: ToolAction
    version: str


def canonical_action(scope: TenantScope, subject: Subject, action: ToolAction, version: str) -> Canonical:
    """The one text of an action that this subject wants done under this version of the policies.

    The road it came by and what has tainted the run are not part of it: neither changes what would be done.
    ValidationFailed when the input holds what JSON does not know.
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
        text = rfc8785.dumps(_tagged(content))
    except RecursionError as error:
        raise ValidationFailed("the input of the action is nested too deep to be approved", pointer="/input") from error
    return Canonical(text.decode(), hashlib.sha256(text).hexdigest())


def read_action(text: str) -> tuple[Subject, ToolAction, str]:
    """What `canonical_action` was given, and the version; the subject without the road it came by and what tainted it."""
    content = _untagged(json.loads(text))
    skills = tuple(SkillUsed(name, digest) for name, digest in content["skills"])
    subject = Subject(content["actor"], "rest", content["agent"], content["run"], skills)
    names = ("tool", "effect", "input", "integration", "operation", "connector", "host", "credential")
    return subject, ToolAction(**{name: content[name] for name in names}), content["policy"]


def find_changes(approved: str, presented: str) -> list[str]:
    """The members in which two actions differ, by name."""
    one, other = json.loads(approved), json.loads(presented)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _tagged(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_LARGEST <= value <= _LARGEST else f"{_TAG}int:{value:x}"
    if isinstance(value, float):
        return f"{_TAG}float:{value!r}" if not math.isfinite(value) or value.is_integer() else value
    if isinstance(value, str):
        return _tagged_text(value)
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise ValidationFailed("the names in an input are texts", pointer="/input")
        return {_tagged_text(name): _tagged(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tagged(item) for item in value]
    raise ValidationFailed(Sentence("an input is JSON, which has no %(name)s", name=type(value).__name__), pointer="/input")


def _tagged_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{_TAG}utf8:{text.encode('utf8', 'surrogatepass').hex()}"
    return f"{_TAG}text:{text}" if text.startswith(_TAG) else text


def _untagged(value: Any) -> Any:
    if isinstance(value, dict):
        return {_untagged(name): _untagged(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, str) or not value.startswith(_TAG):
        return value
    _, kind, rest = value.split(":", 2)
    if kind == "int":
        return int(rest, 16)
    if kind == "float":
        return float(rest)
    return rest if kind == "text" else bytes.fromhex(rest).decode("utf8", "surrogatepass")


# -- as people read it


def label_of(action: ToolAction) -> str:
    """What is to be done, in a few words of ours: `create of orders`."""
    return printable(f"{action.operation} of {action.integration}" if action.integration else action.tool)


def summary_of(action: ToolAction) -> str:
    """What is to be done, in a sentence made of the action alone; secrets are redacted, nothing can hide in it."""
    does = {"read": "reads", "write": "writes", "idempotent": "writes, safe to repeat"}.get(action.effect, action.effect)
    parts = [label_of(action), f"({action.connector})" if action.connector else "", f"at {action.host}" if action.host else ""]
    shown = json.loads(storable_json(action.input, _INPUT_BYTES))
    members = [f"{name} = {_brief(item)}" for name, item in list(shown.items())[:_SHOWN_MEMBERS]]
    if len(shown) > _SHOWN_MEMBERS:
        members.append(f"and {len(shown) - _SHOWN_MEMBERS} more")
    told = f"{' '.join(part for part in parts if part)}, which {does}: {', '.join(members) or 'no input'}"
    return storable_text(printable(told), _SUMMARY_BYTES)


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}…"


def printable(text: str) -> str:
    """The text with everything escaped that would not be seen or would turn the others around."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
