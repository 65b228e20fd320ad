"""Limits of the DataPool that an operator can configure; `app` sets them once, before the first request."""

from dataclasses import dataclass

from appliance.core.pages import MAX_LIMIT


@dataclass
class Limits:
    """The limits in force: bytes of one entity, rows of one page, seconds of one query."""

    entity_bytes: int = 1 << 20
    query_rows: int = MAX_LIMIT
    query_seconds: float = 10


in_force = Limits()


def configure(*, entity_kb: int, query_rows: int, query_seconds: float = 10) -> None:
    """Set the limits; `query_rows` is capped at the contract's maximum page size of 500."""
    in_force.entity_bytes = entity_kb << 10
    in_force.query_rows = max(1, min(query_rows, MAX_LIMIT))
    in_force.query_seconds = query_seconds
