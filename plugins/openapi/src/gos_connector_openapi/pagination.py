"""Pagination of list operations: taken from the settings or detected in the document, and followed page by page.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.connectors.contract import HttpAnswer, SystemFailure
from gos_connector_openapi.outputs import Output

_LISTS = ("items", "data", "results", "value", "values", "records", "entries", "list", "rows", "elements")
_NEXT_URLS = (
    "next", "next_url", "nextUrl", "nextLink", "next_link", "@odata.nextLink", "next_page_url", "links.next", "links.next.href",
    "_links.next", "_links.next.href", "paging.next", "paging.next.link", "pagination.next", "meta.next",
)  # fmt: skip
_CURSORS = (
    "next_cursor", "nextCursor", "nextPageToken", "next_page_token", "nextToken", "next_token", "cursor", "meta.next_cursor",
    "meta.cursor", "paging.next.after", "pagination.next_cursor", "pagination.cursor", "response_metadata.next_cursor",
)  # fmt: skip
_CURSOR_PARAMETERS = ("cursor", "pageToken", "page_token", "nextToken", "next_token", "after", "next_cursor", "starting_after")
_PAGES = ("page", "pageNumber", "page_number", "page[number]")
_OFFSETS = ("offset", "skip", "start", "startAt", "page[offset]")
_SIZES = (
    "per_page", "perPage", "page_size", "pageSize", "limit", "size", "count", "top", "maxResults", "page[size]", "page[limit]",
)  # fmt: skip


def paging_plan(name: str, chosen: Mapping[str, Any], plan: Mapping[str, Any], output: Output) -> dict[str, Any] | None:
    """How an operation's list is paged; None when it is no list, or neither settings nor document say how."""
    override = chosen.get(name, chosen.get("*", {}))
    if override.get("kind") == "none":
        return None
    members = {step["name"]: step["member"] for step in plan["parameters"] if step["in"] == "query"}
    body = _non_null(output.body)
    items = override["items"].split(".") if override.get("items") else _list_in(body)
    paging = _configured(override, members) if override.get("kind") else _detect(body, members, links=output.links)
    if paging is None or items is None:
        return None
    size = _member(members, (override["size_parameter"],) if override.get("size_parameter") else _SIZES)
    taken_members = {step["member"] for step in plan["parameters"]}
    return {**paging, "items": items, "size": size, "input": "read_pages" if "pages" in taken_members else "pages"}


def _configured(override: Mapping[str, Any], members: Mapping[str, str]) -> dict[str, Any]:
    defaults = {"page": _PAGES, "offset": _OFFSETS, "cursor": _CURSOR_PARAMETERS}.get(override["kind"], ())
    member = _member(members, (override["parameter"],) if override.get("parameter") else defaults)
    return {"kind": override["kind"], "at": str(override.get("at", "")).split("."), "member": member}


def _detect(body: Mapping[str, Any], members: Mapping[str, str], *, links: bool) -> dict[str, Any] | None:
    if links:
        return {"kind": "link"}
    if at := _first_path(body, _NEXT_URLS, "string"):
        return {"kind": "next", "at": at}
    cursor, at = _member(members, _CURSOR_PARAMETERS), _first_path(body, _CURSORS, "string")
    if cursor and at:
        return {"kind": "cursor", "at": at, "member": cursor}
    for kind, names in (("page", _PAGES), ("offset", _OFFSETS)):
        if member := _member(members, names):
            return {"kind": kind, "member": member}
    return None


def _non_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first alternative of a schema that is not null."""
    for part in schema.get("anyOf", ()):
        if part.get("type") != "null":
            return _non_null(part)
    return schema


def _is_type(schema: Mapping[str, Any], kind: str) -> bool:
    kinds = _non_null(schema).get("type")
    return kinds == kind or (isinstance(kinds, list) and kind in kinds)


def _list_in(body: Mapping[str, Any]) -> list[str] | None:
    if _is_type(body, "array"):
        return []
    arrays = [name for name, part in body.get("properties", {}).items() if _is_type(part, "array")]
    match = next((name for name in _LISTS if name in arrays), None)
    return [match] if match else arrays if len(arrays) == 1 else None


def _first_path(body: Mapping[str, Any], paths: Sequence[str], kind: str) -> list[str] | None:
    for path in paths:
        for names in ([path], path.split(".")):
            schema: Mapping[str, Any] | None = body
            for name in names:
                schema = _non_null(schema).get("properties", {}).get(name) if schema is not None else None
            if schema is not None and _is_type(schema, kind):
                return names
    return None


def _member(members: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((members[name] for name in names if name in members), None)


@dataclass(frozen=True)
class NextPage:
    """Where the next page is: at another address, or at the same address with changed arguments."""

    url: str = ""
    changes: tuple[tuple[str, Any], ...] = ()


def next_page(paging: Mapping[str, Any], arguments: Mapping[str, Any], answer: HttpAnswer, body: Any) -> NextPage | None:
    """The page after this answer to a call with `arguments`; None at the end."""
    linked = next_link(answer.headers.get("link", ""))
    if linked or paging["kind"] == "link":
        return NextPage(linked) if linked else None
    items = _value_at(body, paging["items"])
    if paging["kind"] in ("next", "cursor"):
        position = _value_at(body, paging["at"])
        is_last = isinstance(body, dict) and body.get("has_more") is False
        if is_last or not isinstance(position, str | int) or position in ("", 0, False):
            return None
        return NextPage(str(position)) if paging["kind"] == "next" else NextPage(changes=((paging["member"], position),))
    size = arguments.get(paging["size"]) if paging.get("size") else None
    if not isinstance(items, list) or not items or (isinstance(size, int) and len(items) < size) or paging["member"] is None:
        return None
    if paging["kind"] == "page":
        return NextPage(changes=((paging["member"], int(arguments.get(paging["member"], 1)) + 1),))
    return NextPage(changes=((paging["member"], int(arguments.get(paging["member"], 0)) + len(items)),))


def items_of(paging: Mapping[str, Any], body: Any) -> list[Any]:
    """The list in a page; SystemFailure when there is none."""
    items = _value_at(body, paging["items"])
    if items is None:
        return []
    if not isinstance(items, list):
        place = ".".join(paging["items"]) or "its top level"
        raise SystemFailure(f"The answer has no list at {place}; its pages cannot be joined.")
    return items


def _value_at(body: Any, path: Sequence[str]) -> Any:
    for name in path:
        body = body.get(name) if isinstance(body, dict) else None
    return body


def next_link(header: str) -> str:
    """The address of `rel="next"` in a Link header (RFC 8288); empty when there is none."""
    for part in header.split("<")[1:]:
        url, _, parameters = part.partition(">")
        for parameter in parameters.split(";"):
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "rel" and "next" in value.strip(' ",').lower().split():
                return url.strip()
    return ""
