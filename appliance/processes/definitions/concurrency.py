"""The rules of a definition for starting executions: how many at once, by which key, and when a waiting one expires."""

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
from appliance.processes.startable import no_such_version

from .reader import Reader
from .template import Template, resolve_path

Behaviour = Literal["queue", "cancel_running", "reject"]
BEHAVIOURS = ("queue", "cancel_running", "reject")
MAX_LIMIT = 10_000
MAX_KEY = 500
KEY_PATTERN = r"^=|\{\{.*\}\}"


@dataclass(frozen=True)
class Concurrency:
    """At most `limit` executions with the same key run at once; without a key, at most `limit` of the whole process."""

    limit: int
    key: Template | None
    behaviour: Behaviour


@dataclass(frozen=True)
class Slot:
    """The concurrency slot of an execution, shared by all with the same `key` (JSON text, empty without one)."""

    key: str
    limit: int
    behaviour: str


def parse_concurrency(reader: Reader, value: Any, pointer: str) -> Concurrency | None:
    """Parse the member `concurrency`, noting every problem; None if it is absent."""
    if value is None:
        return None
    members = reader.mapping(value, pointer, ("limit", "key", "behaviour"), ("limit",))
    limit = reader.integer(members.get("limit", 1) or 0, f"{pointer}/limit", 1, MAX_LIMIT) or 1
    behaviour = reader.choice(members.get("behaviour", "queue"), f"{pointer}/behaviour", BEHAVIOURS)
    key = _parse_key(reader, members["key"], f"{pointer}/key") if "key" in members else None
    return Concurrency(limit, key, "queue" if behaviour == "queue" else "reject" if behaviour == "reject" else "cancel_running")


def _parse_key(reader: Reader, value: Any, pointer: str) -> Template | None:
    """A text made of input members only: it is evaluated inside the write that records the execution, without a sandbox."""
    if not isinstance(value, str) or not re.search(KEY_PATTERN, value):
        reader.problem(pointer, "a key must refer to members of the input, such as = input.customer; or leave it out")
        return None
    key = reader.template(value, pointer)
    for expression in key.expressions:
        if expression.path is None or expression.path[0] != "input" or len(expression.path) < 2:
            reader.problem(pointer, "a key may only refer to members of the input: = input.customer or {{ input.a }}/{{ input.b }}")
    return key


def slot_of(concurrency: Concurrency, input_data: Mapping[str, Any]) -> Slot:
    """The slot that an execution with this input needs; ValidationFailed if the input lacks a member of the key."""
    if concurrency.key is None:
        return Slot("", concurrency.limit, concurrency.behaviour)
    values = {}
    for expression in concurrency.key.expressions:
        is_resolved, value = resolve_path(expression.path or (), {"input": input_data})
        if not is_resolved or value is None:
            raise ValidationFailed(
                Sentence("the concurrency key of the process needs `%(text)s`, which the input lacks", text=expression.text),
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
    """When a new execution of a version may start, and for how long it may wait."""

    concurrency: Concurrency | None = None
    expires_ms: int | None = None


def load_rules(scope: TenantScope, process_id: str, version: int) -> EntryRules:
    """The rules of a stored version; the defaults for a version that is not stored."""
    rows = db.rows(
        "SELECT draft_digest FROM process_version WHERE tenant_id = ? AND process_id = ? AND version = ?",
        (scope.tenant_id, process_id, version),
    )
    return rules_of(scope.tenant_id, process_id, version, rows[0][0]) if rows else EntryRules()


@lru_cache(maxsize=1024)
def rules_of(tenant_id: str, process_id: str, version: int, digest: str) -> EntryRules:
    """The rules of a stored version whose draft has this digest; NotFound.

    Cached by the digest too: a process may be deleted and created again under the same id.
    """
    rows = db.rows(
        "SELECT definition FROM process_version WHERE tenant_id = ? AND process_id = ? AND version = ? AND draft_digest = ?",
        (tenant_id, process_id, version, digest),
    )
    if not rows:
        raise no_such_version(process_id, version)
    definition = json.loads(rows[0][0])
    reader = Reader({})
    expires = reader.duration(definition.get("expires"), "/expires", minimum=1)
    return EntryRules(parse_concurrency(reader, definition.get("concurrency"), "/concurrency"), expires)
