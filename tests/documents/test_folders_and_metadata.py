"""Folders and metadata: filtering, changing, and moving as a whole."""

from typing import Any

import pytest

from appliance.core.database import db
from appliance.core.errors import Conflict, InvalidFilter, NotFound, ValidationFailed
from appliance.core.events import hub
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents import folders, service
from appliance.documents.service import Changes, DocumentFilter, Documents, NewDocument, read_metadata


def store(documents: Documents, scope: TenantScope, name: str, folder: str = "", **metadata: Any) -> str:
    return documents.store_document(scope, NewDocument(name, folder=folder, metadata=metadata), name.encode()).id


def find(documents: Documents, scope: TenantScope, **metadata: Any) -> list[str]:
    return [
        each.name for each in documents.list_documents(scope, DocumentFilter(metadata=metadata), PageRequest(sort="name")).items
    ]


def tree(documents: Documents, scope: TenantScope, under: str = "") -> list[tuple[str, int, int]]:
    page = documents.list_folders(scope, under, PageRequest())
    return [(folder.path, folder.documents, folder.total) for folder in page.items]


def test_documents_are_filtered_by_metadata(documents: Documents, acme: TenantScope, globex: TenantScope) -> None:
    store(documents, acme, "a", customer="ACME", year=2026, paid=True, note=None, lines=[1, 2])
    store(documents, acme, "b", customer="ACME", year=2025.0, paid=1)
    store(documents, globex, "c", customer="ACME")
    assert find(documents, acme, customer="ACME") == ["a", "b"]
    assert find(documents, acme, customer="ACME", year=2025) == ["b"]
    assert find(documents, acme, year=2026.0) == ["a"]
    assert find(documents, acme, year="2026") == []
    assert (find(documents, acme, paid=True), find(documents, acme, paid=1)) == (["a"], ["b"])
    assert find(documents, acme, customer="acme") == find(documents, acme, unknown="x") == []
    assert find(documents, acme, customer="ACME' OR '1'='1") == []
    for invalid in ([1, 2], {"a": 1}, None, "x" * 2000):
        with pytest.raises(InvalidFilter):
            find(documents, acme, lines=invalid)


def test_a_change_merges_metadata(documents: Documents, acme: TenantScope) -> None:
    document_id = store(documents, acme, "a", customer="ACME", address={"city": "Bonn", "zip": "53111"}, old="x")
    changes = Changes(metadata={"address": {"zip": None, "street": "Hauptstr. 1"}, "old": None, "year": 2026})
    changed = documents.update_document(acme, document_id, changes)
    assert changed.metadata == {"address": {"city": "Bonn", "street": "Hauptstr. 1"}, "customer": "ACME", "year": 2026}
    assert changed.version == 2
    assert documents.update_document(acme, document_id, Changes(metadata={"year": 2026})) == changed
    assert (find(documents, acme, old="x"), find(documents, acme, year=2026)) == ([], ["a"])


@pytest.mark.parametrize(
    ("metadata", "pointer"),
    [
        ({"": 1}, "/metadata/"),
        ({"a/b\n": 1}, "/metadata/a~1b\n"),
        ({"x" * 61: 1}, "/metadata/" + "x" * 61),
        ({str(n): n for n in range(51)}, "/metadata"),
        ({"a": "x" * 17_000}, "/metadata"),
        ({"a": float("nan")}, "/metadata"),
        ({"a": "\ud800"}, "/metadata"),
    ],
)
def test_invalid_metadata_is_reported(
    documents: Documents, acme: TenantScope, metadata: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(ValidationFailed) as refused:
        documents.store_document(acme, NewDocument("a", metadata=metadata), b"one")
    assert refused.value.details[0].pointer == pointer


@pytest.mark.parametrize("text", ["", "[]", "1", "{", "[" * 100_000, '{"a": 1e999}', '{"a": "\\ud800"}'])
def test_metadata_must_be_an_object(text: str) -> None:
    with pytest.raises(ValidationFailed):
        read_metadata(text)


def test_folders_are_listed_with_their_counts(documents: Documents, acme: TenantScope, globex: TenantScope) -> None:
    for folder in ("a", "a/b", "a/b", "a/b/c/d", "a-b", "ab", "", "z"):
        store(documents, acme, "x", folder)
    store(documents, globex, "y", "g")
    assert tree(documents, acme) == [
        ("a", 1, 4), ("a-b", 1, 1), ("a/b", 2, 3), ("a/b/c", 0, 1), ("a/b/c/d", 1, 1), ("ab", 1, 1), ("z", 1, 1),
    ]  # fmt: skip
    assert tree(documents, acme, "a/b") == [("a/b/c", 0, 1), ("a/b/c/d", 1, 1)]
    assert tree(documents, acme, "nowhere") == []
    first = documents.list_folders(acme, "", PageRequest(limit=3, count=True))
    rest = documents.list_folders(acme, "", PageRequest(limit=100, cursor=first.next_cursor))
    assert (first.total, len(first.items), [folder.path for folder in rest.items]) == (7, 3, ["a/b/c", "a/b/c/d", "ab", "z"])
    with pytest.raises(ValidationFailed):
        documents.list_folders(acme, "../a", PageRequest())


@pytest.mark.writes_once(reason="listeners are called inside the write")
def test_a_folder_moves_with_everything_in_it(documents: Documents, acme: TenantScope, globex: TenantScope) -> None:
    ids = [store(documents, acme, "x", folder) for folder in ("a", "a/b", "a/b/c", "ab", "z/b")]
    theirs = store(documents, globex, "x", "a")
    notified: list[str] = []
    withdraw = hub.subscribe(service.DocumentChanged, lambda changed: notified.append(changed.document.folder))
    try:
        assert documents.move_folder(acme, "a/", "z") == 3
    finally:
        withdraw()
    assert [documents.get_document(acme, each).folder for each in ids] == ["z", "z/b", "z/b/c", "ab", "z/b"]
    assert sorted(notified) == ["z", "z/b", "z/b/c"]
    assert documents.get_document(globex, theirs).folder == "a"
    assert documents.move_folder(acme, "z/b", "") == 3
    assert documents.get_document(acme, ids[2]).folder == "c"
    twins = [store(documents, acme, "x", folder) for folder in ("t/t/t", "t/t", "t")]
    before = [documents.get_document(acme, each) for each in twins]
    assert documents.move_folder(acme, "t", "") == 3
    after = [documents.get_document(acme, each) for each in twins]
    assert [each.folder for each in after] == ["t/t", "t", ""]
    assert [each.version for each in after] == [each.version + 1 for each in before]
    assert all(each.updated_at >= old.updated_at for each, old in zip(after, before, strict=True))


def test_a_folder_moves_atomically(documents: Documents, acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [store(documents, acme, "x", folder) for folder in ("a", "a/b")]
    for source, target, error in (
        ("a", "a/b", Conflict), ("a", "a", Conflict), ("", "b", ValidationFailed), ("nowhere", "b", NotFound),
        ("a", "../b", ValidationFailed), ("a", "x/" * 240 + "1234567890123456789", ValidationFailed),
    ):  # fmt: skip
        with pytest.raises(error):
            documents.move_folder(acme, source, target)

    def refuse(changed: service.DocumentChanged) -> None:
        if changed.document.folder == "new/b":
            raise ValidationFailed("not there")

    withdraw = hub.subscribe(service.DocumentChanged, refuse)
    try:
        with pytest.raises(ValidationFailed, match="not there"):
            documents.move_folder(acme, "a", "new")
    finally:
        withdraw()
    monkeypatch.setattr(folders, "MAX_MOVED", 1)
    with pytest.raises(Conflict, match="one by one"):
        documents.move_folder(acme, "a", "new")
    assert [documents.get_document(acme, each).folder for each in ids] == ["a", "a/b"]
    assert db.rows("SELECT count(*) FROM document WHERE folder LIKE 'new%'") == [(0,)]
