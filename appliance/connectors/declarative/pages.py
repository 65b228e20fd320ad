"""Reads paginated collections page by page, up to the limits."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from appliance.connectors.contract import ConfigError, Effect, HttpAnswer, HttpRequest, SystemFailure
from appliance.connectors.declarative.answers import read_answer
from appliance.connectors.declarative.plan import ConnectorPlan, ErrorRule, PagesPlan, RequestPlan
from appliance.connectors.declarative.requests import build_request, next_address
from appliance.connectors.declarative.templates import MISSING, Template, Values, follow

Send = Callable[[HttpRequest], HttpAnswer]

_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_REL = re.compile(r';\s*rel\s*=\s*"?([^";,]*)', re.IGNORECASE)
_MOST_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class PagedRequest:
    """A paginated request; its `errors` are checked before the connector's."""

    connector: ConnectorPlan
    request: RequestPlan
    pages: PagesPlan
    errors: tuple[ErrorRule, ...]
    values: Values
    effect: Effect = "read"


@dataclass(frozen=True)
class Page:
    """One page: its body and items, and whether it is the last."""

    body: Any
    items: list[Any]
    last: bool


def read_pages(question: PagedRequest, send: Send) -> Iterator[Page]:
    """Yield pages until the last one, `max_pages` or 32 MiB; SystemFailure when a page repeats."""
    pages, plan = question.pages, question.connector
    page: dict[str, Any] = {"number": pages.first, "offset": 0} | ({} if pages.size is None else {"size": pages.size})
    request = build_request(plan, question.request, {**question.values, "page": page})
    requested: set[tuple[Any, ...]] = set()
    size = 0
    for _ in range(pages.max_pages):
        requested.add(_mark(request))
        answer = send(request)
        body = read_answer(answer, (*question.errors, *plan.errors), plan.title, question.effect)
        items = items_at(body, pages.items)
        size += len(answer.content)
        following = _next(question, request, answer, body, page)
        yield Page(body, items, following is None)
        if following is None or size >= _MOST_BYTES:
            return
        if _mark(following) in requested:
            raise SystemFailure(f"{plan.title}'s next page is one it gave before; correct `pages` of the connector.")
        request = following


def most_of(pages: PagesPlan, values: Values) -> int:
    """Return the maximum number of items; ConfigError when the input does not give a positive whole number."""
    most = pages.max_items.value(values) if isinstance(pages.max_items, Template) else pages.max_items
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ConfigError("The most items wanted must be a whole number of at least 1.")
    return most


def items_at(body: Any, steps: tuple[str | int, ...]) -> list[Any]:
    """Return the array of items in a page; SystemFailure when there is none."""
    items = follow(body, steps)
    if not isinstance(items, list):
        raise SystemFailure(f"The answer holds no array at {'.'.join(map(str, steps)) or 'its top'}.")
    return items


def _next(question: PagedRequest, request: HttpRequest, answer: HttpAnswer, body: Any, page: dict[str, Any]) -> HttpRequest | None:
    """Return the request for the next page, None after the last; updates `page`, the values of {{ page.… }}."""
    pages = question.pages
    count = len(items_at(body, pages.items))
    if pages.more is not None and follow(body, pages.more) in (False, MISSING, None):
        return None
    if pages.kind in ("link", "next_url"):
        target = _link(answer.headers.get("link", "")) if pages.kind == "link" else _scalar(follow(body, pages.next or ()))
        return _request_at(question, request, answer.url, target) if target else None
    if pages.kind == "none":
        return None
    if pages.kind == "cursor":
        cursor = _scalar(follow(body, pages.next or ()))
        page["cursor"] = cursor
        if not cursor:
            return None
    elif count == 0 or (pages.size is not None and pages.more is None and count < pages.size):
        return None
    page["number"] += 1
    page["offset"] += count
    return build_request(question.connector, question.request, {**question.values, "page": page})


def _request_at(question: PagedRequest, request: HttpRequest, current: str, target: str) -> HttpRequest:
    """Return a request for a URL given by the service, which has its own parameters; only an API key in the query is added."""
    url = next_address(question.connector, question.values, current, target)
    auth = question.connector.auth
    params = [pair for pair in request.params if auth.kind == "query" and pair[0] == auth.name]
    return replace(request, url=url, params=params)


def _mark(request: HttpRequest) -> tuple[Any, ...]:
    return request.url, tuple(request.params), request.content


def _link(header: str) -> str | None:
    """Return the target of rel="next" in a Link header (RFC 8288)."""
    for target, attributes in _LINK.findall(header):
        if any("next" in words.lower().split() for words in _REL.findall(attributes)):
            return str(target)
    return None


def _scalar(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "" else None
