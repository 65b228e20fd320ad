"""Files that came with a form become documents of the tenant, and the process gets their ids."""

from collections.abc import Iterable, Sequence
from typing import Any

from appliance.core.errors import UnsupportedMediaType
from appliance.core.scope import TenantScope
from appliance.documents.service import Documents, NewDocument, clean_name, settle_media_type
from appliance.webapps.routes import Upload

from .route_bodies import SentFile, gather


def keep_files(
    documents: Documents, scope: TenantScope, upload: Upload, files: Sequence[SentFile], kept: list[str]
) -> dict[str, Any]:
    """The id of each file's document by the name of its field, several of a name as a list; `kept` gets every id as it is made.

    UnsupportedMediaType, before anything is kept, for a content that is not what the route takes, whatever it is called.
    """
    for file in files:
        found = settle_media_type(file.received.head, clean_name(file.filename), file.media_type)
        if not any(found == wanted or (wanted.endswith("/*") and found.startswith(wanted[:-1])) for wanted in upload.types):
            message = f"{found} is not taken here; send {', '.join(upload.types)}"
            raise UnsupportedMediaType(message, pointer=f"/{file.name[:60]}")
    ids: list[tuple[str, str]] = []
    for file in files:
        content = documents.keep_received(scope, file.received)
        new = NewDocument(clean_name(file.filename), file.media_type, upload.folder)
        document = documents.create_document(scope, new, content)
        kept.append(document.id)
        ids.append((file.name, document.id))
    return gather(ids)


def undo_files(documents: Documents, scope: TenantScope, kept: Iterable[str]) -> None:
    """The process did not take them."""
    for document_id in kept:
        documents.delete_document(scope, document_id)
