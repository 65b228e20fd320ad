"""One valid request for every route of documents."""

import base64
from collections.abc import Callable
from typing import Any

from appliance.core import clock
from tests.api.example import Example
from tests.api.resources import Resources, fresh

STREAM = "application/octet-stream"


def _document(tenant: Resources) -> dict[str, str]:
    return {"document_id": tenant.once("document", tenant.document)}


def _new_document(tenant: Resources) -> dict[str, str]:
    return {"document_id": tenant.document()}


def _upload(tenant: Resources) -> dict[str, str]:
    """An upload of seven bytes, none of which has been sent."""
    return {"upload_id": str(tenant.ask("POST", "/uploads", {"name": "in-parts.txt", "size": 7})["id"])}


def _move_folder(tenant: Resources) -> Example:
    """A folder that is this tenant's only."""
    folder = f"{tenant.tenant}/{fresh('moved')}"
    tenant.ask("POST", "/documents", None, params={"name": "moved.txt", "folder": folder}, content=b"moved")
    return Example(body={"from": folder, "to": f"archive/{folder}"})


def _review_request(tenant: Resources) -> dict[str, Any]:
    """The body of a review request: the reviewer is not the author."""
    return {"reviewers": [tenant.once("reviewer", lambda: _member(tenant))], "needed": 1}


def _member(tenant: Resources) -> str:
    """A separate member, since other examples remove members."""
    login = f"{fresh('reviewer')}@{tenant.tenant}.test"
    tenant.running.user(login, "a long enough password")
    tenant.ask("POST", "/members", {"login": login, "role": "viewer"})
    return login


def _review(tenant: Resources) -> dict[str, str]:
    document = tenant.document()
    review = tenant.ask("POST", f"/documents/{document}/reviews", _review_request(tenant))
    return {"document_id": document, "review_id": str(review["id"])}


def _picture(tenant: Resources) -> str:
    """A document that is a picture."""
    pixels = base64.b64decode("Qk06AAAAAAAAADYAAAAoAAAAAQAAAAEAAAABABgAAAAAAAQAAAAAAAAAAAAAAAAAAAAAAAAA/wAAAA==")
    return str(tenant.ask("POST", "/documents", None, params={"name": "pixel.bmp"}, content=pixels)["id"])


DOCUMENTS: dict[str, Callable[[Resources], Example]] = {
    "list_documents": lambda tenant: Example(query={"metadata": '{"customer": "ACME"}', "search": "number"}),
    "create_document": lambda tenant: Example(
        body=b"number\n10248\n", query={"name": "orders.csv", "folder": "inbox", "tags": "new,csv", "metadata": '{"year": 2026}'},
        media=STREAM,
    ),
    "get_document": lambda tenant: Example(_document(tenant)),
    "download_document": lambda tenant: Example(_document(tenant)),
    "get_document_preview": lambda tenant: Example({"document_id": _picture(tenant)}, query={"page": "1", "width": "160"}),
    "get_document_text": lambda tenant: Example(_document(tenant)),
    "list_revisions": lambda tenant: Example(_document(tenant)),
    "change_document": lambda tenant: Example(
        _new_document(tenant), {"name": "renamed.csv", "tags": ["done"], "metadata": {"customer": "ACME", "paid": True}}
    ),
    "delete_document": lambda tenant: Example(_new_document(tenant)),
    "add_revision": lambda tenant: Example(_new_document(tenant), b"number\n10249\n", {"comment": "corrected"}, media=STREAM),
    "request_review": lambda tenant: Example(
        _new_document(tenant), {**_review_request(tenant), "due": clock.rfc3339(clock.now_ms() + 86_400_000)}
    ),
    "list_reviews": lambda tenant: Example(_document(tenant)),
    "get_review": lambda tenant: Example(_review(tenant)),
    "withdraw_review": lambda tenant: Example(_review(tenant)),
    "list_folders": lambda tenant: Example(query={"under": "inbox"}),
    "move_folder": _move_folder,
    "open_upload": lambda tenant: Example(body={"name": "in-parts.txt", "size": 7, "folder": "inbox"}),
    "get_upload": lambda tenant: Example(_upload(tenant)),
    "delete_upload": lambda tenant: Example(_upload(tenant)),
    "append_upload": lambda tenant: Example(_upload(tenant), b"1234567", media=STREAM, headers={"Upload-Offset": "0"}),
}  # fmt: skip
