"""Changed records of a kind, by `update_time`, which Pipedrive tells in whole seconds."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from appliance.connectors.contract import SystemFailure
from gos_connector_business.changes import Change, moment_of
from gos_connector_business.pipedrive.api import WHO
from gos_connector_business.rest import Pairs
from gos_connector_business.schema import MOST_RECORDS

# Reads up to so many records of the list, with these parameters.
Reader = Callable[[Pairs, int], list[dict[str, Any]]]

_SECOND = timedelta(seconds=1)
_ASCENDING = [("sort_by", "update_time"), ("sort_direction", "asc")]


class ChangedRecords:
    """The changes of one kind."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    def newest(self) -> Change | None:
        found = self._changes([("sort_by", "update_time"), ("sort_direction", "desc")], 1)
        # Of those that changed in that second, the one with the highest id.
        return [found[0], *self._of(found[0].at)][-1] if found else None

    def same(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        return [each for each in self._of(at) if int(each.id) > int(after or 0)][:limit]

    def later(self, at: datetime | None, limit: int) -> list[Change]:
        since = [("updated_since", _written(at + _SECOND))] if at is not None else []
        return self._changes([*since, *_ASCENDING], limit)

    def _of(self, at: datetime) -> list[Change]:
        """All changes of a second, by id: Pipedrive has no filter by id."""
        found = self._changes(
            [("updated_since", _written(at)), *_ASCENDING, ("updated_until", _written(at + _SECOND))], MOST_RECORDS
        )
        return sorted((each for each in found if each.at == at), key=lambda change: int(change.id))

    def _changes(self, params: Pairs, most: int) -> list[Change]:
        return [_change(record) for record in self._read(params, most)]


def _change(record: dict[str, Any]) -> Change:
    number = record.get("id")
    if not isinstance(number, int):
        raise SystemFailure("Pipedrive answered a record without its id.")
    told = record.get("update_time") or record.get("add_time")
    return Change(moment_of(told, WHO).replace(microsecond=0), number, record)


def _written(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
