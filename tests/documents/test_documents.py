"""Documents keep every revision, belong to one tenant, and notify listeners of every change."""

import threading
from pathlib import Path
from typing import Any

import pytest

from appliance.app.parts import blob_holders
from appliance.blobs import GRACE_MS, Blobs
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed, VersionConflict
from appliance.core.events import hub
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents import service
from appliance.documents.service import Changes, DocumentFilter, Documents, NewDocument
from appliance.tenants import service as tenants

PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"


def names(documents: Documents, scope: TenantScope, **filters: Any) -> list[str]:
    page = documents.list_documents(scope, DocumentFilter(**filters), PageRequest(sort="name"))
    return [document.name for document in page.items]


def test_a_document_has_the_stored_content(documents: Documents, acme: TenantScope, tmp_path: Path) -> None:
    new = NewDocument("Invoice 7.pdf", "text/html", "/invoices/2026/", ("paid", "acme", "paid"))
    document = documents.store_document(acme, new, PDF)
    assert documents.get_document(acme, document.id) == document
    assert (document.name, document.folder, document.tags) == ("Invoice 7.pdf", "invoices/2026", ("acme", "paid"))
    assert (document.media_type, document.size, document.revision, document.version) == ("application/pdf", len(PDF), 1, 1)
    assert document.created_by == "key:acme"
    content = documents.open_content(acme, document.id)
    assert (content.name, content.sha256, content.revision) == ("Invoice 7.pdf", document.sha256, 1)
    assert content.read(100) == PDF == b"".join(content.pieces(0, 100))
    content.copy_to(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == PDF


def test_every_table_with_blob_references_is_known_to_the_collector(documents: Documents) -> None:
    """Otherwise the collector would delete blobs that are still referenced."""
    columns = {row[0]: {field.name for field in db.database.obj.get_columns(row[0])} for row in
               ((name,) for name in db.database.obj.get_tables())}  # fmt: skip
    refer = {table for table, names in columns.items() if {"tenant_id", "sha256"} <= names}
    # These repeat the digest of a revision, describe a content, or announce one; none of them keeps a blob.
    not_holding = {"blob", "document", "document_review", "document_scan", "document_upload"}
    assert refer - not_holding == set(blob_holders())


def test_every_revision_stays_readable(documents: Documents, acme: TenantScope) -> None:
    document = documents.store_document(acme, NewDocument("list.csv"), b"a,b\n")
    second = documents.add_revision(acme, document.id, documents.store_content(acme, b"a,b\n1,2\n"), comment="one more row")
    assert (second.revision, second.version, second.size) == (2, 2, 8)
    assert documents.open_content(acme, document.id).read(100) == b"a,b\n1,2\n"
    assert documents.open_content(acme, document.id, 1).read(100) == b"a,b\n"
    page = documents.list_revisions(acme, document.id, PageRequest(limit=1))
    assert [(each.number, each.comment) for each in page.items] == [(2, "one more row")]
    rest = documents.list_revisions(acme, document.id, PageRequest(limit=1, cursor=page.next_cursor))
    assert [each.number for each in rest.items] == [1]
    with pytest.raises(NotFound):
        documents.open_content(acme, document.id, 3)


def test_an_equal_content_creates_no_revision(documents: Documents, acme: TenantScope) -> None:
    document = documents.store_document(acme, NewDocument("a.txt"), b"one")
    assert documents.add_revision(acme, document.id, documents.store_content(acme, b"one")) == document
    documents.add_revision(acme, document.id, documents.store_content(acme, b"two"))
    assert documents.add_revision(acme, document.id, documents.store_content(acme, b"one")).revision == 3


def test_documents_of_another_tenant_are_not_found(documents: Documents, acme: TenantScope, globex: TenantScope) -> None:
    document = documents.store_document(acme, NewDocument("a.txt"), b"one")
    content = documents.store_content(globex, b"two")
    for attempt in (
        lambda: documents.get_document(globex, document.id),
        lambda: documents.open_content(globex, document.id),
        lambda: documents.open_content(globex, document.id, 1),
        lambda: documents.add_revision(globex, document.id, content),
        lambda: documents.update_document(globex, document.id, Changes(name="b.txt")),
        lambda: documents.delete_document(globex, document.id),
        lambda: documents.list_revisions(globex, document.id, PageRequest()),
    ):
        with pytest.raises(NotFound):
            attempt()
    assert names(documents, globex) == []
    assert documents.get_document(acme, document.id) == document


def test_lists_are_filtered_by_name_tag_folder_and_media_type(documents: Documents, acme: TenantScope) -> None:
    for name, folder, tags, data in (
        ("Alpha.pdf", "a", ("x", "y"), PDF),
        ("beta_1.png", "a/b", ("y",), b"\x89PNG\r\n\x1a\n"),
        ("gamma.gif", "", (), b"GIF89a"),
    ):
        documents.store_document(acme, NewDocument(name, None, folder, tags), data)
    assert names(documents, acme) == ["Alpha.pdf", "beta_1.png", "gamma.gif"]
    assert names(documents, acme, name="ALPHA") == ["Alpha.pdf"]
    assert names(documents, acme, name="a_1") == ["beta_1.png"]
    assert names(documents, acme, name="%") == []
    assert names(documents, acme, tag="y") == ["Alpha.pdf", "beta_1.png"]
    assert names(documents, acme, folder="a") == ["Alpha.pdf"]
    assert names(documents, acme, folder="") == ["gamma.gif"]
    assert names(documents, acme, media_type="image/*") == ["beta_1.png", "gamma.gif"]
    assert names(documents, acme, media_type="image/gif") == ["gamma.gif"]
    assert names(documents, acme, tag="y", media_type="application/pdf") == ["Alpha.pdf"]
    first = documents.list_documents(acme, DocumentFilter(), PageRequest(limit=2, count=True))
    rest = documents.list_documents(acme, DocumentFilter(), PageRequest(limit=2, cursor=first.next_cursor))
    assert first.total == 3
    assert [document.name for document in (*first.items, *rest.items)] == ["gamma.gif", "beta_1.png", "Alpha.pdf"]


def test_changes_keep_the_content_and_count_the_version(documents: Documents, acme: TenantScope) -> None:
    document = documents.store_document(acme, NewDocument("a.txt", None, "here", ("x",)), b"a,b")
    changed = documents.update_document(acme, document.id, Changes("b.csv", "", (), "text/csv"), if_version=1)
    assert (changed.name, changed.folder, changed.tags, changed.media_type) == ("b.csv", "", (), "text/csv")
    assert (changed.version, changed.revision, changed.sha256) == (2, 1, document.sha256)
    assert documents.update_document(acme, document.id, Changes("b.csv", tags=())) == changed
    for attempt in (
        lambda: documents.update_document(acme, document.id, Changes(name="c"), if_version=1),
        lambda: documents.add_revision(acme, document.id, documents.store_content(acme, b"c"), if_version=1),
        lambda: documents.delete_document(acme, document.id, if_version=1),
    ):
        with pytest.raises(VersionConflict):
            attempt()
    with pytest.raises(ValidationFailed, match="text/csv"):
        documents.update_document(acme, document.id, Changes(media_type="image/png"))


def test_a_deleted_document_frees_its_bytes(
    documents: Documents, blobs: Blobs, acme: TenantScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = documents.store_document(acme, NewDocument("a.txt"), b"one")
    other = documents.store_document(acme, NewDocument("b.txt"), b"two")
    documents.add_revision(acme, document.id, documents.store_content(acme, b"two"))
    content = documents.open_content(acme, document.id, 1)
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + GRACE_MS + 1)
    documents.delete_document(acme, document.id)
    with pytest.raises(NotFound):
        documents.get_document(acme, document.id)
    assert blobs.collect() == 0
    assert content.read(10) == b"one"
    assert documents.usage(acme).blobs == 2
    monkeypatch.setattr(clock, "now_ms", lambda: now + 2 * GRACE_MS + 2)
    assert blobs.collect() == 1
    assert documents.open_content(acme, other.id).read(10) == b"two"
    assert documents.usage(acme).blobs == 1


@pytest.mark.usefixtures("deletions")
def test_a_tenant_is_deleted_with_its_documents(documents: Documents, acme: TenantScope, globex: TenantScope) -> None:
    foreign = documents.store_document(globex, NewDocument("a.txt"), b"one")
    documents.store_document(acme, NewDocument("a.txt"), b"one")
    tenants.delete_tenant("acme")
    assert db.rows("SELECT tenant_id FROM blob") == db.rows("SELECT tenant_id FROM document") == [("globex",)]
    assert documents.open_content(globex, foreign.id).read(3) == b"one"


@pytest.mark.writes_once(reason="listeners are called inside the write")
def test_listeners_are_called_inside_the_transaction(documents: Documents, acme: TenantScope) -> None:
    events: list[tuple[str, str, int]] = []

    def listen(changed: service.DocumentChanged) -> None:
        document = changed.document
        events.append((changed.event, document.name, document.revision))
        if document.name == "refused.txt":
            raise ValidationFailed("not this one")

    withdraw = hub.subscribe(service.DocumentChanged, listen)
    try:
        document = documents.store_document(acme, NewDocument("a.txt"), b"one")
        documents.add_revision(acme, document.id, documents.store_content(acme, b"two"))
        documents.add_revision(acme, document.id, documents.store_content(acme, b"two"))
        documents.update_document(acme, document.id, Changes(name="b.txt"))
        documents.update_document(acme, document.id, Changes(name="b.txt"))
        documents.delete_document(acme, document.id)
        with pytest.raises(ValidationFailed):
            documents.store_document(acme, NewDocument("refused.txt"), b"one")
    finally:
        withdraw()
    assert events == [
        ("created", "a.txt", 1),
        ("updated", "a.txt", 2),
        ("updated", "b.txt", 2),
        ("deleted", "b.txt", 2),
        ("created", "refused.txt", 1),
    ]
    assert names(documents, acme) == []


def test_a_failed_outer_write_leaves_no_document(documents: Documents, acme: TenantScope) -> None:
    content = documents.store_content(acme, b"one")

    def fail() -> None:
        documents.create_document(acme, NewDocument("a.txt"), content)
        raise ApplianceError("after all not")

    with pytest.raises(ApplianceError, match="after all not"):
        db.write(fail)
    assert names(documents, acme) == []
    documents.create_document(acme, NewDocument("a.txt"), content)


def test_concurrent_revisions_get_distinct_numbers(documents: Documents, acme: TenantScope) -> None:
    document = documents.store_document(acme, NewDocument("a.txt"), b"start")

    def add(index: int) -> None:
        documents.add_revision(acme, document.id, documents.store_content(acme, str(index).encode()))

    threads = [threading.Thread(target=add, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    page = documents.list_revisions(acme, document.id, PageRequest())
    assert [each.number for each in page.items] == list(range(9, 0, -1))


@pytest.mark.parametrize(
    ("new", "pointer"),
    [
        (NewDocument("../a"), "/name"),
        (NewDocument(""), "/name"),
        (NewDocument("a\x00b"), "/name"),
        (NewDocument("x" * 201), "/name"),
        (NewDocument("evil\u202efdp.exe"), "/name"),
        (NewDocument("a", folder="../b"), "/folder"),
        (NewDocument("a", folder="a//b"), "/folder"),
        (NewDocument("a", tags=("good", " bad")), "/tags/1"),
        (NewDocument("a", tags=("a,b",)), "/tags/0"),
        (NewDocument("a", tags=tuple(map(str, range(51)))), "/tags"),
    ],
)
def test_invalid_values_are_reported(documents: Documents, acme: TenantScope, new: NewDocument, pointer: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        documents.store_document(acme, new, b"one")
    assert refused.value.details[0].pointer == pointer
