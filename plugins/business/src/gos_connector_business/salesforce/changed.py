"""Changed records of an object type, by `SystemModstamp`, which also moves when Salesforce itself changes a record."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from appliance.connectors.contract import SystemFailure
from gos_connector_business.changes import Change, moment_of
from gos_connector_business.salesforce.api import WHO
from gos_connector_business.salesforce.soql import quoted

# Reads up to so many records of a query.
Reader = Callable[[str, int], list[dict[str, Any]]]


class ChangedRecords:
    """The changes of one type that match a condition."""

    def __init__(self, read: Reader, kind: str, fields: list[str], where: str) -> None:
        self._read, self._where = read, where
        names = {each.lower(): each for each in ["Id", "SystemModstamp", *fields]}
        # The schema lets names through that are letters, digits and underscores; `where` is the author's own.
        self._select = f"SELECT {', '.join(names.values())} FROM {kind}"  # noqa: S608

    def newest(self) -> Change | None:
        found = self._changes([], "SystemModstamp DESC, Id DESC", 1)
        return found[0] if found else None

    def same(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        above = [f"Id > {quoted(str(after))}"] if after is not None else []
        return self._changes([f"SystemModstamp = {_written(at)}", *above], "Id", limit)

    def later(self, at: datetime | None, limit: int) -> list[Change]:
        return self._changes([f"SystemModstamp > {_written(at)}"] if at is not None else [], "SystemModstamp, Id", limit)

    def _changes(self, conditions: list[str], order: str, limit: int) -> list[Change]:
        held = [*([f"({self._where})"] if self._where else []), *conditions]
        where = f" WHERE {' AND '.join(held)}" if held else ""
        return [_change(record) for record in self._read(f"{self._select}{where} ORDER BY {order} LIMIT {limit}", limit)]


def _change(record: dict[str, Any]) -> Change:
    values = {name.lower(): value for name, value in record.items()}
    number = values.get("id")
    if not isinstance(number, str) or not number:
        raise SystemFailure("Salesforce answered a record without its id.")
    return Change(moment_of(values.get("systemmodstamp"), WHO), number, record)


def _written(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
