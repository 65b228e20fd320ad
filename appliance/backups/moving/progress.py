"""The record, in the target database, of what a move has copied; its table also keeps an appliance from using that database."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.migrations import UNFINISHED_MOVE

from .problems import MoveFailed

TABLE = UNFINISHED_MOVE

CREATE = f"CREATE TABLE {TABLE} (part TEXT PRIMARY KEY, rows BIGINT NOT NULL, details TEXT NOT NULL)"
ORIGIN, COMPLETED = "origin", "completed"
Execute = Callable[[str, tuple[Any, ...]], int]


@dataclass(frozen=True)
class Progress:
    """What the target has: `origin` identifies the source, `rows` are the rows copied of each table, `constraints` are the
    statements that restore its foreign keys, `is_completed` is set once those and the indexes are there.
    """

    origin: str
    rows: dict[str, int]
    constraints: list[str]
    is_completed: bool


def read(rows: Sequence[tuple[Any, ...]]) -> Progress:
    """The progress in the rows (part, rows, details) of the table."""
    parts = {str(part): (int(count), str(details)) for part, count, details in rows}
    origin = json.loads(parts.pop(ORIGIN)[1])
    is_completed = parts.pop(COMPLETED, None) is not None
    tables = {part.removeprefix("table "): count for part, (count, _) in parts.items()}
    return Progress(origin["id"], tables, origin["constraints"], is_completed)


def begin(execute: Execute, origin: str, constraints: Sequence[str]) -> None:
    """Record in the transaction that creates the schema that this move has begun."""
    execute(CREATE, ())
    _insert(execute, ORIGIN, 0, json.dumps({"id": origin, "constraints": list(constraints)}))


def advance(execute: Execute, table: str, before: int, count: int) -> None:
    """Record in the transaction that inserts them that `count` further rows were copied; MoveFailed if another move did so."""
    if before == 0:
        _insert(execute, f"table {table}", count, "")
    elif execute(f"UPDATE {TABLE} SET rows = ? WHERE part = ? AND rows = ?", (before + count, f"table {table}", before)) != 1:  # noqa: S608
        raise MoveFailed("another `gos migrate-to` copies to the same database; wait for it, or stop it and run this one again")


def complete(execute: Execute) -> None:
    """Record in the transaction that builds them that foreign keys, indexes and sequences are there."""
    _insert(execute, COMPLETED, 0, "")


def _insert(execute: Execute, part: str, rows: int, details: str) -> None:
    execute(f"INSERT INTO {TABLE} (part, rows, details) VALUES (?, ?, ?)", (part, rows, details))  # noqa: S608
