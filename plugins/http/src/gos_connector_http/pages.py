"""Pagination: which request fetches the next page of a collection."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

from appliance.connectors.contract import HttpAnswer, SystemFailure

_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_REL = re.compile(r';\s*rel\s*=\s*"?([^";,]*)', re.IGNORECASE)


@dataclass(frozen=True)
class Step:
    """A change for the next request: another address, or parameters that replace those of the same name."""

    url: str | None = None
    params: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Progress:
    """How many pages and items were fetched so far, and how many items the last page had."""

    pages: int
    items: int
    last_items: int


def first_step(pages: Mapping[str, Any]) -> Step:
    """The parameters of the first request."""
    match pages["kind"]:
        case "page":
            return Step(params=_page(pages, 0))
        case "offset":
            return Step(params=_offset(pages, 0))
    return Step()


def next_step(pages: Mapping[str, Any], answer: HttpAnswer, body: Any, progress: Progress) -> Step | None:
    """The step to the next page, or None after the last one."""
    match pages["kind"]:
        case "link":
            return _to_url(answer, _link(answer.headers.get("link", "")))
        case "next_url":
            return _to_url(answer, _scalar(find(body, pages["pointer"])))
        case "cursor":
            cursor = _scalar(find(body, pages["pointer"]))
            return Step(params=((pages["parameter"], cursor),)) if cursor else None
        case "page":
            short = progress.last_items < pages.get("size", 0)
            return None if short or not progress.last_items else Step(params=_page(pages, progress.pages))
        case "offset":
            short = progress.last_items < pages.get("size", 100)
            return None if short or not progress.last_items else Step(params=_offset(pages, progress.items))
    return None


def _page(pages: Mapping[str, Any], done: int) -> tuple[tuple[str, str], ...]:
    params = [(pages.get("parameter", "page"), str(pages.get("first", 1) + done))]
    if pages.get("size_parameter") and pages.get("size"):
        params.append((pages["size_parameter"], str(pages["size"])))
    return tuple(params)


def _offset(pages: Mapping[str, Any], done: int) -> tuple[tuple[str, str], ...]:
    return (pages.get("parameter", "offset"), str(done)), (
        pages.get("size_parameter", "limit"),
        str(pages.get("size", 100)),
    )


def _to_url(answer: HttpAnswer, target: str | None) -> Step | None:
    return Step(url=urljoin(answer.url, target)) if target else None


def _link(header: str) -> str | None:
    """The target of rel="next" in a Link header (RFC 8288)."""
    for target, attributes in _LINK.findall(header):
        if any("next" in words.lower().split() for words in _REL.findall(attributes)):
            return str(target)
    return None


def _scalar(value: Any) -> str | None:
    return None if value is None or value is False or isinstance(value, dict | list) else str(value)


def items_of(body: Any, pointer: str) -> Sequence[Any]:
    """The array at a JSON pointer; SystemFailure when there is none."""
    items = find(body, pointer)
    if not isinstance(items, list):
        raise SystemFailure(f"The response has no array at {pointer!r}; set `items` to the JSON pointer of the array.")
    return items


def find(body: Any, pointer: str) -> Any:
    """The value at a JSON pointer (RFC 6901), or None when there is none."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(body, dict):
            body = body.get(key)
        elif isinstance(body, list) and key.isdigit() and int(key) < len(body):
            body = body[int(key)]
        else:
            return None
    return body
