"""Reads changed records of a kind by `update_time`, which Pipedrive reports in whole seconds."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from appliance.connectors.contract import SystemFailure
from gos_connector_business.changes import Change, moment_of
from gos_connector_business.pipedrive.api import SYSTEM
from gos_connector_business.rest import Pairs
from gos_connector_business.schema import MAX_RECORDS

# Reads the list with these parameters and returns at most the given number of records.
Reader = Callable[[Pairs, int], list[dict[str, Any]]]

_SECOND = timedelta(seconds=1)
_ASCENDING = [("sort_by", "update_time"), ("sort_direction", "asc")]


class ChangedRecords:
    """The changed records of one kind."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    def find_newest(self) -> Change | None:
        changes = self._changes([("sort_by", "update_time"), ("sort_direction", "desc")], 1)
        # Of the records that changed in that second, return the one with the highest id.
        return [changes[0], *self._in_second(changes[0].at)][-1] if changes else None

    def list_at(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        return [each for each in self._in_second(at) if int(each.id) > int(after or 0)][:limit]

    def list_after(self, at: datetime | None, limit: int) -> list[Change]:
        since = [("updated_since", _format_time(at + _SECOND))] if at is not None else []
        return self._changes([*since, *_ASCENDING], limit)

    def _in_second(self, at: datetime) -> list[Change]:
        """Return all changes in a second, ordered by id, because Pipedrive cannot filter by id."""
        changes = self._changes(
            [("updated_since", _format_time(at)), *_ASCENDING, ("updated_until", _format_time(at + _SECOND))], MAX_RECORDS
        )
        return sorted((each for each in changes if each.at == at), key=lambda change: int(change.id))

    def _changes(self, params: Pairs, max_records: int) -> list[Change]:
        return [_to_change(record) for record in self._read(params, max_records)]


def _to_change(record: dict[str, Any]) -> Change:
    number = record.get("id")
    if not isinstance(number, int):
        raise SystemFailure("Pipedrive returned a record without its id.")
    changed_at = record.get("update_time") or record.get("add_time")
    return Change(moment_of(changed_at, SYSTEM).replace(microsecond=0), number, record)


def _format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
