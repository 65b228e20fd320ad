"""What a definition says about when its executions may begin: how many at once, by which key, and how long one may be late."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence

from .reading import Reader
from .template import Template, resolve_path

Behaviour = Literal["queue", "cancel_running", "reject"]
BEHAVIOURS = ("queue", "cancel_running", "reject")
MOST_AT_ONCE = 10_000
MAX_KEY = 500
KEY_PATTERN = r"^=|\{\{.*\}\}"


@dataclass(frozen=True)
class Concurrency:
    """At most `limit` executions of the process at once that have the same key; without a key, of all of them."""

    limit: int
    key: Template | None
    behaviour: Behaviour


@dataclass(frozen=True)
class Slot:
    """The place an execution takes among those with its `key` (JSON text, empty without one)."""

    key: str
    limit: int
    behaviour: str


def read_concurrency(reader: Reader, value: Any, pointer: str) -> Concurrency | None:
    """The member `concurrency`, with every problem noted."""
    if value is None:
        return None
    given = reader.mapping(value, pointer, ("limit", "key", "behaviour"), ("limit",))
    limit = reader.whole(given.get("limit", 1) or 0, f"{pointer}/limit", 1, MOST_AT_ONCE) or 1
    behaviour = reader.choice(given.get("behaviour", "queue"), f"{pointer}/behaviour", BEHAVIOURS)
    key = _read_key(reader, given["key"], f"{pointer}/key") if "key" in given else None
    return Concurrency(limit, key, "queue" if behaviour == "queue" else "reject" if behaviour == "reject" else "cancel_running")


def _read_key(reader: Reader, value: Any, pointer: str) -> Template | None:
    """A text made of members of the input: it is filled in inside the write that records the execution, without a sandbox."""
    if not isinstance(value, str) or not re.search(KEY_PATTERN, value):
        reader.problem(pointer, "a key is a text made of members of the input, such as = input.customer; or leave it out")
        return None
    key = reader.template(value, pointer)
    for expression in key.expressions:
        if expression.path is None or expression.path[0] != "input" or len(expression.path) < 2:
            reader.problem(pointer, "a key has members of the input, such as = input.customer or {{ input.a }}/{{ input.b }}")
    return key


def slot_of(concurrency: Concurrency, given: Mapping[str, Any]) -> Slot:
    """The slot that an execution with this input needs; ValidationFailed when its key is missing in the input."""
    if concurrency.key is None:
        return Slot("", concurrency.limit, concurrency.behaviour)
    values = {}
    for expression in concurrency.key.expressions:
        found, value = resolve_path(expression.path or (), {"input": given})
        if not found or value is None:
            raise ValidationFailed(
                Sentence("the process runs one after another by `%(text)s`, which this input lacks", text=expression.text),
                pointer="/concurrency/key",
            )
        values[expression] = value
    text = db.dump_json(concurrency.key.fill(values))
    if len(text) > MAX_KEY:
        raise ValidationFailed(
            Sentence("the concurrency key is longer than %(max_key)s characters", max_key=MAX_KEY), pointer="/concurrency/key"
        )
    return Slot(text, concurrency.limit, concurrency.behaviour)


@dataclass(frozen=True)
class EntryRules:
    """What a version demands of every new execution."""

    concurrency: Concurrency | None = None
    expires_ms: int | None = None


def read_rules(scope: TenantScope, process_id: str, version: int) -> EntryRules:
    """The rules of a stored version; none for a version that is not stored."""
    found = db.rows(
        "SELECT draft_digest FROM process_version WHERE tenant_id = ? AND process_id = ? AND version = ?",
        (scope.tenant_id, process_id, version),
    )
    return _rules_of(scope.tenant_id, process_id, version, found[0][0]) if found else EntryRules()


@lru_cache(maxsize=1024)
def _rules_of(tenant_id: str, process_id: str, version: int, digest: str) -> EntryRules:
    """Kept by the digest too: a process may be deleted and made anew."""
    ((text,),) = db.rows(
        "SELECT definition FROM process_version WHERE tenant_id = ? AND process_id = ? AND version = ? AND draft_digest = ?",
        (tenant_id, process_id, version, digest),
    )
    definition = json.loads(text)
    reader = Reader({})
    expires = reader.duration(definition.get("expires"), "/expires", least=1)
    return EntryRules(read_concurrency(reader, definition.get("concurrency"), "/concurrency"), expires)
