"""One valid request for every route of documents."""

from collections.abc import Callable

from tests.api.example import Example
from tests.api.resources import Resources, fresh

STREAM = "application/octet-stream"


def _document(tenant: Resources) -> dict[str, str]:
    return {"document_id": tenant.once("document", tenant.document)}


def _made(tenant: Resources) -> dict[str, str]:
    return {"document_id": tenant.document()}


def _upload(tenant: Resources) -> dict[str, str]:
    """An upload of seven bytes, none of which has been sent."""
    return {"upload_id": str(tenant.ask("POST", "/documents/uploads", {"name": "in-parts.txt", "size": 7})["id"])}


def _moved(tenant: Resources) -> Example:
    """A folder that is this tenant's only."""
    folder = f"{tenant.tenant}/{fresh('moved')}"
    tenant.ask("POST", "/documents", None, params={"name": "moved.txt", "folder": folder}, content=b"moved")
    return Example(body={"from": folder, "to": f"archive/{folder}"})


DOCUMENTS: dict[str, Callable[[Resources], Example]] = {
    "list_documents": lambda tenant: Example(query={"metadata": '{"customer": "ACME"}'}),
    "create_document": lambda tenant: Example(
        body=b"number\n10248\n", query={"name": "orders.csv", "folder": "inbox", "tags": "new,csv", "metadata": '{"year": 2026}'},
        media=STREAM,
    ),
    "get_document": lambda tenant: Example(_document(tenant)),
    "download_document": lambda tenant: Example(_document(tenant)),
    "list_revisions": lambda tenant: Example(_document(tenant)),
    "change_document": lambda tenant: Example(
        _made(tenant), {"name": "renamed.csv", "tags": ["done"], "metadata": {"customer": "ACME", "paid": True}}
    ),
    "delete_document": lambda tenant: Example(_made(tenant)),
    "add_revision": lambda tenant: Example(_made(tenant), b"number\n10249\n", {"comment": "corrected"}, media=STREAM),
    "list_folders": lambda tenant: Example(query={"under": "inbox"}),
    "move_folder": _moved,
    "open_upload": lambda tenant: Example(body={"name": "in-parts.txt", "size": 7, "folder": "inbox"}),
    "get_upload": lambda tenant: Example(_upload(tenant)),
    "delete_upload": lambda tenant: Example(_upload(tenant)),
    "append_upload": lambda tenant: Example(_upload(tenant), b"1234567", media=STREAM, headers={"Upload-Offset": "0"}),
}  # fmt: skip
