"""Polls a declarative trigger: an item is new when its cursor value is greater, or equal and not returned yet."""

from collections.abc import Iterator, Mapping
from typing import Any

from appliance.connectors.contract import Item, Polled, SystemFailure
from appliance.connectors.declarative.answers import read_answer
from appliance.connectors.declarative.pages import PagedRequest, Send, items_at, read_pages
from appliance.connectors.declarative.plan import ConnectorPlan, Steps, TriggerPlan
from appliance.connectors.declarative.requests import build_request
from appliance.connectors.declarative.templates import Values, fill_tree, follow

MOST_AT_ONCE = 200

PolledItem = tuple[Any, str, Any]


def poll(plan: ConnectorPlan, trigger: TriggerPlan, values: Values, cursor: Any, send: Send) -> Polled:
    """Return new items, oldest first.

    The cursor is `{"at": value, "keys": […]}`: the greatest value returned so far, and the keys of the items with that value.
    An item that appears later with the same timestamp is therefore not lost, and no item is returned twice.
    """
    if cursor is None and trigger.begin == "now":
        entries = _newest(plan, trigger, values, send)
        return Polled((), _cursor(entries, None) if entries else None)
    request_values = values if cursor is None else {**values, "cursor": cursor["at"]}
    entries, complete = _read(plan, trigger, request_values, send)
    entries.sort(key=lambda each: each[0])
    if cursor is not None and entries and isinstance(cursor["at"], str) != isinstance(entries[0][0], str):
        raise SystemFailure(f"{plan.title} changed the cursor from numbers to texts, or back; they have no order.")
    new = [each for each in entries if cursor is None or _is_new(each, cursor)]
    batch = new[:MOST_AT_ONCE]
    items = [Item(f"{key}@{at}", _shaped(trigger, item, values)) for at, key, item in batch]
    if not batch and not complete:
        raise SystemFailure(
            f"{plan.title} answered only items that are known; with `ascending`, let the request ask for items from the cursor on."
        )
    return Polled(items, _cursor(batch, cursor), more=not complete or len(batch) < len(new))


def _is_new(each: PolledItem, cursor: Mapping[str, Any]) -> bool:
    at, key, _ = each
    return bool(at > cursor["at"] or (at == cursor["at"] and key not in cursor["keys"]))


def _cursor(entries: list[PolledItem], before: Any) -> Any:
    if not entries:
        return before
    at = max(each[0] for each in entries)
    known_keys = before["keys"] if before is not None and before["at"] == at else []
    return {"at": at, "keys": sorted({*known_keys, *(key for value, key, _ in entries if value == at)})}


def _newest(plan: ConnectorPlan, trigger: TriggerPlan, values: Values, send: Send) -> list[PolledItem]:
    """Return existing items, at least those with the greatest cursor value."""
    if trigger.newest is None:
        entries, complete = _read(plan, trigger, values, send)
        if not complete:
            raise SystemFailure(f"{plan.title} holds more than the pages read; give the trigger `newest`, or begin at the start.")
        return entries
    answer = send(build_request(plan, trigger.newest, values))
    body = read_answer(answer, (*trigger.errors, *plan.errors), plan.title, "read")
    return list(_entries(items_at(body, trigger.pages.items), trigger))


def _read(plan: ConnectorPlan, trigger: TriggerPlan, values: Values, send: Send) -> tuple[list[PolledItem], bool]:
    """Return the items and whether they are complete; if the service sorts ascending, reading may stop early."""
    entries: list[PolledItem] = []
    complete = False
    for page in read_pages(PagedRequest(plan, trigger.request, trigger.pages, trigger.errors, values), send):
        entries += _entries(page.items, trigger)
        complete = page.last
        if trigger.ascending and len(entries) >= 2 * MOST_AT_ONCE:
            break
    if not complete and not trigger.ascending:
        raise SystemFailure(f"{plan.title} holds more than {trigger.pages.max_pages} pages; narrow the trigger's query.")
    if len({isinstance(at, str) for at, _, _ in entries}) > 1:
        raise SystemFailure("The cursor holds texts and numbers mixed; they have no order.")
    return entries, complete


def _entries(items: list[Any], trigger: TriggerPlan) -> Iterator[PolledItem]:
    for item in items:
        at, key = _scalar(item, trigger.cursor, "cursor"), _scalar(item, trigger.key, "key")
        yield at, str(key), item


def _scalar(item: Any, steps: Steps, name: str) -> Any:
    value = follow(item, steps)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise SystemFailure(f"An item has no text or number at {'.'.join(map(str, steps))!r}; correct `{name}` of the trigger.")
    return value


def _shaped(trigger: TriggerPlan, item: Any, values: Values) -> Any:
    if trigger.shape is None:
        return item
    return fill_tree(trigger.shape, {"item": item, "query": values["query"]})
