"""Turns files of a form into documents of the tenant; the process gets their ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.blobs import StoredBlob
from appliance.core import ids
from appliance.core.errors import UnsupportedMediaType
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents import Documents, NewDocument, clean_name
from appliance.documents.contents import settle_media_type
from appliance.web import SentFile
from appliance.webapps.routes import Upload

from .route_bodies import group_values


@dataclass(frozen=True)
class StoredFiles:
    """Stored contents that are not documents yet; they are garbage collected unless `create` commits.

    `ids` maps field names to the ids of the future documents, a list for several files of one name.
    """

    ids: Mapping[str, Any] = field(default_factory=dict)
    documents: Sequence[tuple[str, NewDocument, StoredBlob]] = ()

    def create(self, documents: Documents, scope: TenantScope) -> None:
        """Inside the write that starts the execution: create the documents."""
        for document_id, new, content in self.documents:
            documents.create_document(scope, new, content, document_id)


def _is_accepted(media_type: str, upload: Upload) -> bool:
    return any(
        media_type == pattern or (pattern.endswith("/*") and media_type.startswith(pattern[:-1])) for pattern in upload.types
    )


def store_files(documents: Documents, scope: TenantScope, upload: Upload, files: Sequence[SentFile]) -> StoredFiles:
    """Store the contents. UnsupportedMediaType, before anything is stored, if a file's detected type is not accepted by the
    route."""
    for file in files:
        media_type = settle_media_type(file.received.head, clean_name(file.name), file.media_type)
        if not _is_accepted(media_type, upload):
            message = Sentence("%(found)s is not accepted here; send %(types)s", found=media_type, types=', '.join(upload.types))
            raise UnsupportedMediaType(message, pointer=f"/{file.field[:60]}")
    stored = []
    for file in files:
        new = NewDocument(clean_name(file.name), file.media_type, upload.folder)
        stored.append((ids.new("doc"), new, documents.store_received(scope, file.received)))
    ids_by_field = group_values((file.field, document_id) for file, (document_id, _, _) in zip(files, stored, strict=True))
    return StoredFiles(ids_by_field, stored)
