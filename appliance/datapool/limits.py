"""Bounds of the DataPool that an operator can set; `app` hands the configuration over once, before anything is served."""

from dataclasses import dataclass

from appliance.core.pages import MAX_LIMIT


@dataclass
class Limits:
    """The bounds in force: bytes of one entity, rows of one page, seconds of one query."""

    entity_bytes: int = 1 << 20
    query_rows: int = MAX_LIMIT
    query_seconds: float = 10


in_force = Limits()


def configure(*, entity_kb: int, query_rows: int, query_seconds: float = 10) -> None:
    """Set the bounds; cursors and answers allow no more than the contract's 500 rows."""
    in_force.entity_bytes = entity_kb << 10
    in_force.query_rows = max(1, min(query_rows, MAX_LIMIT))
    in_force.query_seconds = query_seconds
