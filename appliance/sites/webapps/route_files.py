"""Files that came with a form become documents of the tenant, and the process gets their ids."""

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
from appliance.uploads import SentFile
from appliance.webapps.routes import Upload

from .route_bodies import gather


@dataclass(frozen=True)
class KeptFiles:
    """Contents that are durable and no document yet: nobody claims them unless `create` commits, and they are collected.

    `ids` has the id each file's document will have by the name of its field, several of a name as a list.
    """

    ids: Mapping[str, Any] = field(default_factory=dict)
    documents: Sequence[tuple[str, NewDocument, StoredBlob]] = ()

    def create(self, documents: Documents, scope: TenantScope) -> None:
        """Inside the write that starts the execution: the documents."""
        for document_id, new, content in self.documents:
            documents.create_document(scope, new, content, document_id)


def keep_files(documents: Documents, scope: TenantScope, upload: Upload, files: Sequence[SentFile]) -> KeptFiles:
    """The contents, kept; UnsupportedMediaType, before anything is, for one that is not what the route takes, whatever it is
    called."""
    for file in files:
        found = settle_media_type(file.received.head, clean_name(file.name), file.media_type)
        if not any(found == wanted or (wanted.endswith("/*") and found.startswith(wanted[:-1])) for wanted in upload.types):
            message = Sentence("%(found)s is not taken here; send %(types)s", found=found, types=', '.join(upload.types))
            raise UnsupportedMediaType(message, pointer=f"/{file.field[:60]}")
    kept = []
    for file in files:
        new = NewDocument(clean_name(file.name), file.media_type, upload.folder)
        kept.append((ids.new("doc"), new, documents.keep_received(scope, file.received)))
    named = gather((file.field, document_id) for file, (document_id, _, _) in zip(files, kept, strict=True))
    return KeptFiles(named, kept)
