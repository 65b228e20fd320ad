"""One valid request for every route by which documents leave, and for what keeps them."""

from collections.abc import Callable

from tests.api.example import Example
from tests.api.resources import Resources, fresh


def _published(tenant: Resources) -> Example:
    document = tenant.document()
    tenant.ask("POST", f"/documents/{document}/publish", {"path": f"{fresh('public')}.csv"})
    return Example({"document_id": document})


def _to_publish(tenant: Resources) -> Example:
    body = {"path": f"{fresh('public')}.csv", "revision": 1, "cache": "immutable"}
    return Example({"document_id": tenant.document()}, body)


DELIVERY: dict[str, Callable[[Resources], Example]] = {
    "publish_document": _to_publish,
    "get_publication": _published,
    "unpublish_document": _published,
}
