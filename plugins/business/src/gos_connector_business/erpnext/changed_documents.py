"""Reads changed documents of a type by `modified`, which a site reports in its local time without a time zone."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from appliance.connectors.contract import SystemFailure
from gos_connector_business.changes import Change, moment_of
from gos_connector_business.erpnext.api import SYSTEM

# Returns the documents that match filters, in an order, at most the given number.
Reader = Callable[[list[Any], str, int], list[dict[str, Any]]]


class ChangedDocuments:
    """The changed documents of one type.  The site's local times are treated as UTC because they are only compared."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    def find_newest(self) -> Change | None:
        changes = self._changes([], "modified desc, name desc", 1)
        return changes[0] if changes else None

    def list_at(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        above = [["name", ">", after]] if after is not None else []
        return self._changes([["modified", "=", _format_time(at)], *above], "name asc", limit)

    def list_after(self, at: datetime | None, limit: int) -> list[Change]:
        return self._changes([["modified", ">", _format_time(at)]] if at is not None else [], "modified asc, name asc", limit)

    def _changes(self, filters: list[Any], order: str, limit: int) -> list[Change]:
        return [_to_change(document) for document in self._read(filters, order, limit)]


def _to_change(document: dict[str, Any]) -> Change:
    name = document.get("name")
    if not isinstance(name, str | int):
        raise SystemFailure("ERPNext returned a document without its name.")
    return Change(moment_of(document.get("modified"), SYSTEM), name, document, str(document.get("modified")))


def _format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")
