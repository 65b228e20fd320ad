"""Indexes values of inputs for searching executions: up to twenty per input, stored when the execution is accepted.

Indexed are texts of at most 200 characters, numbers and booleans, outer ones first, up to five levels deep; items of a list
have the path of the list.  Other values cannot be searched for.
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from peewee import SQL, fn

from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.models import InputValueRow

MAX_VALUES = 20
MAX_VISITED = 1_000
MAX_DEPTH = 5
MAX_LENGTH = 200
_BY_PATH = re.compile(r"([A-Za-z_$][\w$-]*(?:\.[\w$-]+)*)=(.*)", re.ASCII | re.DOTALL)


def iter_values(input_data: Any) -> Iterator[tuple[str, str]]:
    """(path, text) of each indexed value of an input, with paths such as `order.lines.sku`."""
    queue: deque[tuple[str, Any, int]] = deque([("", input_data, 0)])
    count = visited = 0
    while queue and count < MAX_VALUES and visited < MAX_VISITED:
        path, value, depth = queue.popleft()
        visited += 1
        if isinstance(value, dict | list):
            if depth < MAX_DEPTH:
                inner = value.items() if isinstance(value, dict) else (("", item) for item in value)
                for name, item in inner:
                    if len(queue) >= MAX_VISITED:
                        break
                    queue.append((".".join(part for part in (path, str(name)) if part), item, depth + 1))
            continue
        text = text_of(value)
        if text is not None and 1 <= len(text) <= MAX_LENGTH and len(path) <= MAX_LENGTH:
            count += 1
            yield path, text


def text_of(value: Any) -> str | None:
    """The text under which a value is indexed; None for null."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else db.dump_json(value)


def save_values(scope: TenantScope, execution_id: str, input_data: Any) -> None:
    """Inside the write that accepts an execution: index the values of its input."""
    pairs = list(iter_values(input_data))
    if not pairs:
        return
    rows = ", ".join(["(?, ?, ?, ?, ?)"] * len(pairs))
    values = [part for number, (path, text) in enumerate(pairs) for part in (scope.tenant_id, execution_id, number, path, text)]
    db.send(
        f"INSERT INTO execution_input (tenant_id, execution_id, number, path, value) VALUES {rows}",  # noqa: S608 our own names
        tuple(values),
    )


def executions_with(scope: TenantScope, search: str) -> Any:
    """A query for the ids of executions whose input has the value: `10248` anywhere, `order.number=10248` at that path.

    After a leading `=` everything is the value, even if it contains another `=`.
    """
    path, values = _parse_search(search)
    query = scope.select(InputValueRow, InputValueRow.execution_id).where(InputValueRow.value.in_(values))
    return query.where(InputValueRow.path == path) if path is not None else query


def has_value(scope: TenantScope, search: str, execution_id: Any) -> Any:
    """The condition that the input of this execution has the value, which is examined execution by execution.

    It is written so that the index on values, which would lead to all executions with the value each time, does not apply, and
    with the whole primary key, because SQLite prefers that index even for all values of the tenant.
    """
    path, values = _parse_search(search)
    of_execution = (InputValueRow.execution_id == execution_id) & (InputValueRow.number >= 0)
    query = scope.select(InputValueRow, SQL("1")).where(of_execution)
    query = query.where(fn.COALESCE(InputValueRow.value, "").in_(values))
    return fn.EXISTS(query.where(InputValueRow.path == path) if path is not None else query)


def _parse_search(search: str) -> tuple[str | None, list[str]]:
    """The path of a search, if it has one, and the texts under which its value is indexed; ValidationFailed."""
    match = None if search.startswith("=") else _BY_PATH.fullmatch(search)
    path, value = (match[1], match[2]) if match else (None, search.removeprefix("="))
    if not 1 <= len(value) <= MAX_LENGTH:
        raise ValidationFailed(Sentence("a value to search for has 1 to %(longest)s characters", longest=MAX_LENGTH), pointer="/q")
    return path, sorted({value, _as_number(value)})


def _as_number(value: str) -> str:
    """The value as numbers are indexed if it is one (7.0 is 7), otherwise unchanged."""
    try:
        number = json.loads(value)
    except (ValueError, RecursionError):
        return value
    is_number = isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < 1e15
    return (text_of(number) or value) if is_number else value
