"""One item of a plan, and a helper to read all pages of a list."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from appliance.core.pages import MAX_LIMIT, Page, PageRequest

T = TypeVar("T")
Kind = Literal["connector", "secret", "collection", "integration", "process", "webapp", "agent", "skill", "policy"]
Action = Literal["create", "update", "unchanged", "missing", "delete", "leftover"]


@dataclass(frozen=True)
class Change:
    """One item of a plan; `blocked` says what has to be done before it can be applied.

    `leftover`: the solution created it and no longer contains it; a prune deletes it.  `patch` is the merge patch of a
    collection (RFC 7396).  `failed` says why an applied WebApp is not served: its checks failed after the commit.
    """

    kind: Kind
    id: str
    action: Action
    summary: str
    blocked: str | None = None
    patch: Mapping[str, Any] = field(default_factory=dict, repr=False)
    failed: str | None = None


def read_all(fetch: Callable[[PageRequest], Page[T]]) -> Iterator[T]:
    """Every item of a paginated list."""
    cursor: str | None = None
    while True:
        page = fetch(PageRequest(MAX_LIMIT, cursor))
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return
