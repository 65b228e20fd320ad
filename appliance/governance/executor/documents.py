"""Documents of one connector call: streams what its caller may read and write, until the call's deadline."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from appliance.connectors.contract import ConfigError, DocumentContent, Rejected, TransientError
from appliance.core import clock
from appliance.core.errors import ApplianceError, NotFound, StorageFull
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.documents import Documents, NewDocument, clean_name


@dataclass(frozen=True)
class CallDocumentsFactory:
    """Access to every tenant's documents; a document that a connector writes has at most `most_bytes`."""

    documents: Documents
    most_bytes: int

    def of_call(self, scope: TenantScope, access: frozenset[str]) -> "CallDocuments":
        """The documents of one call, for `read` and `write` as far as `access` allows."""
        return CallDocuments(self, scope, access)


@dataclass(frozen=True)
class CallDocuments:
    """The contract's `Documents` of one call; `deadline` is set when the call begins."""

    factory: CallDocumentsFactory
    scope: TenantScope
    access: frozenset[str]
    deadline: float = 0.0

    def until(self, deadline: float) -> "CallDocuments":
        """The same documents with a deadline, in monotonic seconds."""
        return replace(self, deadline=deadline)

    def open(self, document_id: str) -> DocumentContent:
        """See `Documents.open` in the connector contract."""
        self._check_access("read")
        try:
            content = self.factory.documents.open_content(self.scope, document_id)
        except NotFound as error:
            raise ConfigError(f"There is no document {document_id[:80]!r} in this tenant; check its id.") from error
        pieces = content.pieces
        return DocumentContent(
            content.document_id,
            content.name,
            content.media_type,
            content.size,
            lambda: self._until_deadline(pieces(0, content.size), "read"),
        )

    def create(self, name: str, chunks: Iterable[bytes], content_type: str = "") -> str:
        """See `Documents.create` in the connector contract."""
        self._check_access("write")
        draft = NewDocument(clean_name(name), content_type or None)
        try:
            document = self.factory.documents.store_document(
                self.scope, draft, self._until_deadline(self._capped(chunks), "written")
            )
        except StorageFull as error:
            raise TransientError(error.message) from error
        except ApplianceError as error:
            raise Rejected(
                Sentence("The document %(name)s cannot be stored: %(message)s", name=repr(name[:80]), message=error.message)
            ) from error
        return document.id

    def _check_access(self, access: str) -> None:
        if access not in self.access:
            raise ConfigError(
                f"This call may not {access} documents; give the process grants: documents: [{access}], or use a key with "
                f"the scope documents.{access}."
            )

    def _capped(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > self.factory.most_bytes:
                raise Rejected(Sentence(
                    "The content exceeds the maximum document size of %(most_bytes)s MB.",
                    most_bytes=self.factory.most_bytes >> 20,
                ))
            yield chunk

    def _until_deadline(self, chunks: Iterable[bytes], done: str) -> Iterator[bytes]:
        for chunk in chunks:
            if clock.monotonic() >= self.deadline:
                raise TransientError(f"The call ran out of time while a document was {done}.")
            yield chunk
