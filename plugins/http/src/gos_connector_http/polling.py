"""The trigger `new_items`: the items of a JSON list whose cursor field is greater than any seen before."""

from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import Item, Json, Polled, SystemFailure
from gos_connector_http.pages import find, items_of

MAX_PER_POLL = 200


def request_of(query: Json, cursor: Any) -> dict[str, Any]:
    """The call that fetches the list, with the cursor as a query parameter when one is configured."""
    own = ("items", "cursor_field", "cursor_parameter", "key_field", "begin")
    call = {name: value for name, value in query.items() if name not in own}
    if cursor is not None and "cursor_parameter" in query:
        call["query"] = {**call.get("query", {}), query["cursor_parameter"]: cursor}
    return call


def new_items(body: Any, query: Json, cursor: Any) -> Polled:
    """The new items of a list, oldest first; none on the first poll, unless the query begins at the start.

    Items with the same cursor value are returned together, so that none of them is skipped.
    """
    positioned = [(_position(item, query), item) for item in items_of(body, query.get("items", ""))]
    positions = [position for position, _ in positioned] + ([] if cursor is None else [cursor])
    if len({isinstance(position, str) for position in positions}) > 1:
        raise SystemFailure("The cursor field contains both texts and numbers, which cannot be ordered; check `cursor_field`.")
    positioned.sort(key=lambda pair: pair[0])
    if cursor is None and query.get("begin", "now") == "now":
        return Polled((), positioned[-1][0] if positioned else None)
    new = [pair for pair in positioned if cursor is None or pair[0] > cursor]
    cut = MAX_PER_POLL
    while 0 < cut < len(new) and new[cut][0] == new[cut - 1][0]:
        cut += 1
    batch = new[:cut]
    items = [Item(_key(item, position, query), item) for position, item in batch]
    return Polled(items, batch[-1][0] if batch else cursor, more=cut < len(new))


def _position(item: Any, query: Json) -> Any:
    value = find(item, _pointer(query["cursor_field"])) if isinstance(item, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise SystemFailure(f"An item has no text or number at {query['cursor_field']!r}; check `cursor_field`.")
    return value


def _key(item: Any, position: Any, query: Json) -> str:
    value = find(item, _pointer(query.get("key_field", "id")))
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise SystemFailure(f"An item has no text or number at {query.get('key_field', 'id')!r}; check `key_field`.")
    return f"{value}@{position}"


def _pointer(name: str) -> str:
    return name if name.startswith("/") else f"/{name}"
