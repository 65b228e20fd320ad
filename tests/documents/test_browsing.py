"""Folders are listed with their totals, then documents, page by page."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, get_args

import pytest

from appliance.core.errors import InvalidCursor, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents import browsing
from appliance.documents.browsing import FolderPage
from appliance.documents.service import DocumentFilter, Documents, NewDocument, Order

# Names that a comparison by characters puts between a folder and what is below it.
FOLDERS = ("a", "a b", "a-b/c", "a/b/c", "a/b/d", "a0", "ab/c", "B", "ä/ö", "z/z/z", "")


@pytest.fixture
def filled(documents: Documents, acme: TenantScope, globex: TenantScope) -> Documents:
    for folder in FOLDERS:
        for name in ("two", "One"):
            documents.store_document(acme, NewDocument(name, folder=folder), f"{name} in {folder}".encode())
    documents.store_document(globex, NewDocument("theirs", folder="a/theirs"), b"theirs")
    return documents


def pages(documents: Documents, scope: TenantScope, folder: str, limit: int, order: Order = "name") -> Iterator[FolderPage]:
    cursor: str | None = None
    while True:
        yield (page := documents.list_folder_contents(scope, folder, order, PageRequest(limit, cursor)))
        if (cursor := page.next_cursor) is None:
            return


def inside(page: FolderPage) -> tuple[list[tuple[str, int]], list[str]]:
    return [(each.path, each.total) for each in page.folders], [each.name for each in page.documents]


def test_a_folder_lists_its_direct_contents(filled: Documents, acme: TenantScope) -> None:
    (root,) = pages(filled, acme, "", 50)
    of_root = [("B", 2), ("a", 6), ("a b", 2), ("a-b", 2), ("a0", 2), ("ab", 2), ("z", 2), ("ä", 2)]
    assert (*inside(root), root.total) == (of_root, ["One", "two"], 22)
    (page,) = pages(filled, acme, "/a/", 50)
    assert (*inside(page), page.total, page.folder) == ([("a/b", 4)], ["One", "two"], 6, "a")
    assert [each.name for each in page.folders] == ["b"]
    assert inside(next(pages(filled, acme, "z/z", 50))) == ([("z/z/z", 2)], [])
    (nowhere,) = pages(filled, acme, "nowhere", 50)
    assert (*inside(nowhere), nowhere.total) == ([], [], 0)
    with pytest.raises(ValidationFailed):
        filled.list_folder_contents(acme, "../a", "name", PageRequest())


def test_pages_contain_everything_once_folders_first(filled: Documents, acme: TenantScope) -> None:
    for order in get_args(Order):
        (whole,) = pages(filled, acme, "", 50, order)
        for limit in (1, 2, 7, 8, 9, 10, 11):
            parts = list(pages(filled, acme, "", limit, order))
            assert [each for page in parts for each in page.folders] == list(whole.folders)
            assert [each.id for page in parts for each in page.documents] == [each.id for each in whole.documents]
            assert all(len(page.folders) + len(page.documents) == limit for page in parts[:-1])
            assert not any(before.documents and after.folders for before, after in pairwise(parts))
    newest = sorted(whole.documents, key=lambda each: (each.created_at, each.id), reverse=True)
    assert [each.id for each in whole.documents] == [each.id for each in newest]


def test_totals_are_counted_up_to_a_bound(filled: Documents, acme: TenantScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "MAX_COUNT", 3)
    (root,) = pages(filled, acme, "", 50)
    assert (root.total, dict(inside(root)[0])["a"], dict(inside(root)[0])["a0"]) == (3, 3, 2)


def test_a_cursor_of_another_list_is_refused(filled: Documents, acme: TenantScope) -> None:
    for cursor in ("/", "/x", "/WzFd", "/WyJmb2xkZXIiLDFd", "x", "WyJmb2xkZXIiLCJhIl0"):
        with pytest.raises(InvalidCursor):
            filled.list_folder_contents(acme, "", "name", PageRequest(5, cursor))


def test_lists_can_be_limited_to_a_folder_and_those_below(filled: Documents, acme: TenantScope) -> None:
    def find(**filters: Any) -> list[tuple[str, str]]:
        page = filled.list_documents(acme, DocumentFilter(**filters), PageRequest(sort="folder,name", count=True))
        assert page.total == len(page.items)
        return [(each.folder, each.name) for each in page.items]

    assert find(under="a/", name="two") == [("a", "two"), ("a/b/c", "two"), ("a/b/d", "two")]
    assert find(under="a/b/c") == [("a/b/c", "One"), ("a/b/c", "two")]
    assert len(find(under="")) == 2 * len(FOLDERS)
    with pytest.raises(ValidationFailed):
        find(under="a/../b")

