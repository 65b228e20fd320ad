"""Reads changed records of an object type by the property that holds the time of the last change."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from appliance.connectors.contract import SystemFailure
from gos_connector_business.changes import Change, moment_of
from gos_connector_business.hubspot.api import SYSTEM

# Runs a search and returns at most the given number of records.
Search = Callable[[dict[str, Any], int], list[dict[str, Any]]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class ChangedRecords:
    """The changed records of one type that match the trigger's filters."""

    def __init__(self, search: Search, kind: str, properties: list[str], filters: list[dict[str, Any]]) -> None:
        self._search, self._filters = search, filters
        self._moment = "lastmodifieddate" if kind in ("contacts", "0-1") else "hs_lastmodifieddate"
        self._properties = sorted({*properties, self._moment})

    def find_newest(self) -> Change | None:
        last = self._changes([], self._moment, 1, "DESCENDING")
        if not last:
            return None
        # Of the records that changed at that moment, return the one with the highest id.
        return next(iter(self._changes([self._moment_filter(last[0].at)], "hs_object_id", 1, "DESCENDING")), last[0])

    def list_at(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        above = {"propertyName": "hs_object_id", "operator": "GT", "value": str(after or 0)}
        return self._changes([self._moment_filter(at), above], "hs_object_id", limit)

    def list_after(self, at: datetime | None, limit: int) -> list[Change]:
        conditions = [{"propertyName": self._moment, "operator": "GT", "value": _to_milliseconds(at)}] if at is not None else []
        return self._changes(conditions, self._moment, limit)

    def _moment_filter(self, at: datetime) -> dict[str, Any]:
        value = _to_milliseconds(at)
        return {"propertyName": self._moment, "operator": "BETWEEN", "value": value, "highValue": value}

    def _changes(self, conditions: list[dict[str, Any]], order: str, limit: int, direction: str = "ASCENDING") -> list[Change]:
        """Search with these conditions in addition to the trigger's filters."""
        filters = [*self._filters, *conditions]
        body: dict[str, Any] = {"properties": self._properties, "sorts": [{"propertyName": order, "direction": direction}]}
        if filters:
            body["filterGroups"] = [{"filters": filters}]
        return [self._to_change(record) for record in self._search(body, limit)]

    def _to_change(self, record: dict[str, Any]) -> Change:
        properties = record.get("properties")
        number = str(record.get("id"))
        if not isinstance(properties, dict) or not (number.isascii() and number.isdigit()):
            raise SystemFailure("HubSpot returned a record without its id or its properties.")
        return Change(moment_of(properties.get(self._moment), SYSTEM), int(number), record)


def _to_milliseconds(at: datetime) -> str:
    return str((at - _EPOCH) // _MILLISECOND)
