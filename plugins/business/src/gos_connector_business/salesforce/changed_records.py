"""Reads changed records of an object type by `SystemModstamp`, which also covers changes by Salesforce itself."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from appliance.connectors.contract import SystemFailure
from gos_connector_business.changes import Change, moment_of
from gos_connector_business.salesforce.api import SYSTEM
from gos_connector_business.salesforce.soql import quote

# Runs a query and returns at most the given number of records.
Reader = Callable[[str, int], list[dict[str, Any]]]


class ChangedRecords:
    """The changed records of one type that match the trigger's condition."""

    def __init__(self, read: Reader, kind: str, fields: list[str], where: str) -> None:
        self._read, self._where = read, where
        names = {each.lower(): each for each in ["Id", "SystemModstamp", *fields]}
        # The schema allows only letters, digits and underscores in names; `where` is written by the author of the trigger.
        self._select = f"SELECT {', '.join(names.values())} FROM {kind}"  # noqa: S608

    def find_newest(self) -> Change | None:
        changes = self._changes([], "SystemModstamp DESC, Id DESC", 1)
        return changes[0] if changes else None

    def list_at(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        above = [f"Id > {quote(str(after))}"] if after is not None else []
        return self._changes([f"SystemModstamp = {_format_time(at)}", *above], "Id", limit)

    def list_after(self, at: datetime | None, limit: int) -> list[Change]:
        return self._changes([f"SystemModstamp > {_format_time(at)}"] if at is not None else [], "SystemModstamp, Id", limit)

    def _changes(self, conditions: list[str], order: str, limit: int) -> list[Change]:
        terms = [*([f"({self._where})"] if self._where else []), *conditions]
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        return [_to_change(record) for record in self._read(f"{self._select}{where} ORDER BY {order} LIMIT {limit}", limit)]


def _to_change(record: dict[str, Any]) -> Change:
    values = {name.lower(): value for name, value in record.items()}
    number = values.get("id")
    if not isinstance(number, str) or not number:
        raise SystemFailure("Salesforce returned a record without its id.")
    return Change(moment_of(values.get("systemmodstamp"), SYSTEM), number, record)


def _format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
