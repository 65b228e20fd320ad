"""Actions on documents: upload files, add revisions, rename, move, tag and delete."""

from appliance.console.frame.routing import Answer, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.documents import Changes, NewDocument, clean_name
from appliance.web import SentFile

from .document_list import folder_url, list_page
from .documents import document_page

FILE = "file"


@page("POST", "/documents/-/upload", scope="documents.write", takes_files=True)
def upload_documents(visit: Visit) -> Answer:
    """Store each uploaded file as a document; files that cannot be stored are listed in the error, the others are stored."""
    sent = [each for each in visit.request.files if each.field == FILE]
    failures: list[str] = []
    if not sent:
        return list_page(visit, ValidationFailed("no file was chosen; choose one or more files to upload", pointer="/file"))
    for each in sent:
        try:
            _store(visit, each)
        except ApplianceError as refusal:
            failures.append(f"{each.name[:200]}: {refusal.message}")
    if failures:
        stored, total, names = len(sent) - len(failures), len(sent), "; ".join(failures[:10])
        return list_page(
            visit,
            ValidationFailed(Sentence(
                "%(stored)s of %(total)s files were stored; not stored: %(named)s", stored=stored, total=total, named=names
            )),
        )
    return Redirect(folder_url(visit.request.field("folder").strip().strip("/")))


def _store(visit: Visit, sent: SentFile) -> None:
    documents, field = visit.services.documents.files, visit.request.field
    tags = _tags(field("tags"))
    new = NewDocument(clean_name(sent.name), None, field("folder").strip(), tags)
    documents.create_document(visit.scope, new, documents.store_received(visit.scope, sent.received))


def _tags(text: str) -> tuple[str, ...]:
    return tuple(tag.strip() for tag in text.split(",") if tag.strip())


@page("POST", "/documents/<document_id>/revisions", scope="documents.write", takes_files=True)
def add_revision(visit: Visit, document_id: str) -> Answer:
    """Add a revision to a document; existing shares and reviews keep referring to their own revision."""
    documents, sent = visit.services.documents.files, visit.request.file(FILE)
    documents.get_document(visit.scope, document_id)
    try:
        if sent is None:
            raise ValidationFailed("no file was chosen; choose the file of the new revision", pointer="/file")
        content = documents.store_received(visit.scope, sent.received)
        documents.add_revision(visit.scope, document_id, content, comment=visit.request.field("comment").strip())
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal)
    return Redirect(f"/console/documents/{document_id}")


@page("POST", "/documents/<document_id>/change", scope="documents.write")
def change_document(visit: Visit, document_id: str) -> Answer:
    """Rename, move or tag a document; its content is unchanged."""
    field = visit.request.field
    changes = Changes(name=field("name").strip(), folder=field("folder").strip(), tags=_tags(field("tags")))
    try:
        visit.services.documents.files.update_document(visit.scope, document_id, changes)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal)
    return Redirect(f"/console/documents/{document_id}")


@page("POST", "/documents/<document_id>/delete", scope="documents.write")
def delete_document(visit: Visit, document_id: str) -> Answer:
    """Delete a document with all its revisions and shares, unless it is retained or under a legal hold."""
    documents = visit.services.documents.files
    folder = documents.get_document(visit.scope, document_id).folder
    try:
        documents.delete_document(visit.scope, document_id)
    except NotFound:
        raise
    except ApplianceError as refusal:
        return document_page(visit, document_id, refusal)
    return Redirect(folder_url(folder))
