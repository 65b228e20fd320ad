"""Values of inputs by which executions are found: up to twenty of an input, kept beside it when it is accepted.

Kept are texts of at most 200 characters, numbers and truths, the outer ones first, at most five levels deep; items of a list
stand under the list's own path.  What is not among them is not found by it.
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.models import InputValueRow

MOST_VALUES = 20
MOST_LOOKED_AT = 1_000
DEEPEST = 5
LONGEST = 200
_BY_PATH = re.compile(r"([A-Za-z_$][\w$-]*(?:\.[\w$-]+)*)=(.*)", re.ASCII | re.DOTALL)


def values_of(given: Any) -> Iterator[tuple[str, str]]:
    """(path, value) of what is kept of an input: `order.lines.sku` and the text of each."""
    waiting: deque[tuple[str, Any, int]] = deque([("", given, 0)])
    kept = looked_at = 0
    while waiting and kept < MOST_VALUES and looked_at < MOST_LOOKED_AT:
        path, value, depth = waiting.popleft()
        looked_at += 1
        if isinstance(value, dict | list):
            if depth < DEEPEST:
                inner = value.items() if isinstance(value, dict) else (("", item) for item in value)
                for name, item in inner:
                    if len(waiting) >= MOST_LOOKED_AT:
                        break
                    waiting.append((".".join(part for part in (path, str(name)) if part), item, depth + 1))
            continue
        text = text_of(value)
        if text is not None and 1 <= len(text) <= LONGEST and len(path) <= LONGEST:
            kept += 1
            yield path, text


def text_of(value: Any) -> str | None:
    """A value as it is looked for; None for what is not."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else db.dump_json(value)


def keep_values(scope: TenantScope, execution_id: str, given: Any) -> None:
    """Inside the write that accepts an execution."""
    found = list(values_of(given))
    if not found:
        return
    rows = ", ".join(["(?, ?, ?, ?, ?)"] * len(found))
    values = [part for number, (path, text) in enumerate(found) for part in (scope.tenant_id, execution_id, number, path, text)]
    db.execute(
        f"INSERT INTO execution_input (tenant_id, execution_id, number, path, value) VALUES {rows}",  # noqa: S608 our own names
        tuple(values),
    )


def executions_with(scope: TenantScope, search: str) -> Any:
    """A query for the ids of executions whose input has the value: `10248` anywhere, `order.number=10248` there.

    After a `=` at the front all of the rest is the value, whatever is in it.
    """
    match = None if search.startswith("=") else _BY_PATH.fullmatch(search)
    path, value = (match[1], match[2]) if match else (None, search.removeprefix("="))
    if not 1 <= len(value) <= LONGEST:
        raise ValidationFailed(Sentence("a value to look for has 1 to %(longest)s characters", longest=LONGEST), pointer="/q")
    found = scope.select(InputValueRow, InputValueRow.execution_id).where(InputValueRow.value.in_({value, _as_number(value)}))
    return found.where(InputValueRow.path == path) if path is not None else found


def _as_number(value: str) -> str:
    """The value as a number is kept, where it is one: 7.0 is 7."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    is_number = isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < 1e15
    return (text_of(found) or value) if is_number else value
