"""Reads changed records of a model by `write_date`, which Odoo reports in whole seconds."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from appliance.connectors.contract import SystemFailure
from gos_connector_business.changes import Change, moment_of

# Returns the records that match a domain, in an order, at most the given number.
Reader = Callable[[list[Any], str, int], list[dict[str, Any]]]

_SECOND = timedelta(seconds=1)


class ChangedRecords:
    """The changed records of one model."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    def find_newest(self) -> Change | None:
        changes = self._changes([], "write_date desc, id desc", 1)
        return changes[0] if changes else None

    def list_at(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        # The database stores fractions of a second that Odoo does not report.
        domain = [["write_date", ">=", _format_time(at)], ["write_date", "<", _format_time(at + _SECOND)], ["id", ">", after or 0]]
        return self._changes(domain, "id", limit)

    def list_after(self, at: datetime | None, limit: int) -> list[Change]:
        domain = [["write_date", ">=", _format_time(at + _SECOND)]] if at is not None else [["write_date", "!=", False]]
        return self._changes(domain, "write_date, id", limit)

    def _changes(self, domain: list[Any], order: str, limit: int) -> list[Change]:
        return [_to_change(record) for record in self._read(domain, order, limit)]


def _to_change(record: dict[str, Any]) -> Change:
    number = record.get("id")
    if not isinstance(number, int):
        raise SystemFailure("Odoo returned a record without its id.")
    return Change(moment_of(record.get("write_date"), "Odoo").replace(microsecond=0), number, record)


def _format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")
