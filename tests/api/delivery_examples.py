"""One valid request for every route of publishing, shares and retention."""

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


def _document(tenant: Resources) -> Example:
    return Example({"document_id": tenant.once("document", tenant.document)})


def _share(tenant: Resources) -> Example:
    document = tenant.once("document", tenant.document)
    share = tenant.ask("POST", f"/documents/{document}/shares", {"max_downloads": 1})
    return Example({"document_id": document, "share_id": str(share["id"])})


def _to_share(tenant: Resources) -> Example:
    body = {"revision": "latest", "password": "a sentence to tell", "max_downloads": 3, "note": "by a test"}
    return Example({"document_id": tenant.once("document", tenant.document)}, body)


def _to_change(tenant: Resources) -> Example:
    at = _share(tenant)
    audience = {"integration": tenant.once("mailbox", tenant.mailbox), "allow": ["ann@firma.example", "*@other.example"]}
    return Example(at.path, {"audience": audience})


def _under_legal_hold(tenant: Resources) -> Example:
    """A separate document, since no other example could delete it."""
    document = tenant.document()
    tenant.ask("PUT", f"/documents/{document}/legal-hold", {"reason": "by a test"})
    return Example({"document_id": document})


def _to_retain(tenant: Resources) -> Example:
    return Example({"document_id": tenant.document()}, {"retain_until": "2090-01-01T00:00:00Z"})


def _with_folder_rule(tenant: Resources) -> Example:
    folder = fresh("folder")
    tenant.ask("PUT", "/documents/folder-rules", {"folder": folder, "review": "required"})
    return Example(query={"folder": folder})


DELIVERY: dict[str, Callable[[Resources], Example]] = {
    "publish_document": _to_publish,
    "get_publication": _published,
    "unpublish_document": _published,
    "list_shares": _document,
    "create_share": _to_share,
    "get_share": _share,
    "update_share": _to_change,
    "revoke_share": _share,
    "list_downloads": _document,
    "export_downloads": _document,
    "get_document_retention": _document,
    "retain_document": _to_retain,
    "hold_document": lambda tenant: Example({"document_id": tenant.document()}, {"reason": "by a test"}),
    "release_document": _under_legal_hold,
    "list_folder_rules": lambda tenant: Example(),
    "put_folder_rule": lambda tenant: Example(body={"folder": fresh("folder"), "delete_after_days": 30}),
    "delete_folder_rule": _with_folder_rule,
}
